"""More ways to say what the tools do, for training only: the held-out sets are drawn from the
narrower grammar of `tools.py`; their hand-written wordings come from neither (`held_out.py`)."""

from __future__ import annotations

MORE: dict[str, tuple[str, ...]] = {
    "set_timer": (
        "[beep|ping|alert|notify|nudge] me [in|after] {duration}",
        "[let me know|tell me|shout|buzz me] [when|once|as soon as] {duration} [have passed|are up|"
        "are over|have gone by]",
        "[give|grant] me {duration}[| on the clock]",
        "[start|begin] [a countdown|counting down|a count down] [of|from|for] {duration}",
        "[clock|measure|keep track of] {duration}[| for me]",
        ".{duration} [on the timer|on the clock|timer]", ".{duration}, [go|starting now|from now]",
        ".countdown[:|,] {duration}", ".[my|the] {label} needs a timer [of|for] {duration}",
        ".{label} [timer|countdown][,|:] {duration}", "time [my|the] {label} for {duration}",
        "[have|get] the kitchen timer [run|ring|go off] [for|after|in] {duration}",
        ".I have to [stop|check it|take it out|turn it off] in {duration}, [time it|set a timer]",
        "?could a timer [ring|go off] in {duration}",
    ),
    "set_alarm": (
        ".I [have|need|want] to [get up|be up|wake up|be awake] at {time}[| <DAY>]",
        ".I must [not oversleep, wake me|be awake] at {time}",
        "[get me|have me] [out of bed|awake|up] [at|by] {time}[| <DAY>]",
        "[make sure|see to it] [I am|I'm] [up|awake|out of bed] [at|by] {time}[| <DAY>]",
        "[ring|sound|schedule] [the|an|my] alarm [at|for] {time}[| <DAY>]",
        ".[wake up|wake-up|alarm clock|alarm][:| at| for|,] {time}[| <DAY>]",
        ".the alarm [should|must|has to] [ring|go off] at {time}[| <DAY>]",
        "?[can|could] [my|the] alarm [ring|go off|be set] [at|for] {time}[| <DAY>]",
        ".[don't|do not] let me sleep [past|longer than|later than] {time}[| <DAY>]",
        "[set|move|change] [the|my] [alarm clock|wake-up call|wake-up alarm] [to|for] {time}",
    ),
    "get_weather": (
        "?[what's|what is] it like outside in {city}[| <DAY>]",
        "?[any|is there any|will there be any] [rain|snow|sun|wind|storms] in {city}[| <DAY>]",
        "?[how|what] [hot|cold|warm|windy|wet] [will it be|does it get|will it get] in {city}"
        "[| <DAY>]",
        "?what [temperature|weather] [can I expect|should I expect|do we get] in {city}[| <DAY>]",
        "?[what's|what is] the temperature [outside |]in {city}[| <DAY>]",
        ".{city} [weather|forecast|temperature][| <DAY>]",
        "?[is|will] the weather [nice|bad|good|fine|be nice|be good|be bad] in {city}[| <DAY>]",
        ".[I am|I'm|we are] [travelling|going|flying|driving] to {city}[| <DAY>], [what's|how's] "
        "the "
        "[weather|forecast]",
        "?[does it|will it] [rain|snow|freeze|clear up|storm] in {city}[| <DAY>]",
        "[see|find out|check] [if|whether] it [rains|snows|will rain|is raining|is sunny] in "
        "{city}",
        "?[is the sun shining|is it raining|is it snowing|is it freezing] in {city}",
    ),
    "send_message": (
        "[write to|ping|drop a line to] {person}: {text:words}",
        "[pass on|forward|send on] to {person} that {text}",
        "[inform|notify|remind|warn] {person} that {text}",
        ".{person} [should|needs to|has to|must] [know|be told] that {text}",
        "[give|pass] {person} [the|this|a] message: {text:words}",
        "[get|send] word to {person} that {text}",
        "[message|text|write] {person} [with|with the words|the following][:|] {text:words}",
        "[send|fire off|shoot] [a message|a text|an sms|this] to {person}: {text:words}",
        ".message {person}, {text:words}", ".sms to {person}: {text:words}",
        "[answer|reply to] {person}[:| that] {text:words}",
        "?[can|could] [{person} be told|you tell {person}] that {text}",
        "[say to|let] {person}[:| know:] {text:words}",
    ),
    "call_contact": (
        ".I [have|need|want|would like] to [talk|speak] [to|with] {person}",
        "[connect|put] me [with|through to|to] {person}", "[get|reach] {person} [for me|now]",
        "[dial|try|ring up|phone up] {person}[| for me| please]",
        "[start|place|begin] a [video |voice |]call [with|to] {person}",
        "?[can|could] [I|we] [talk|speak] [to|with] {person}",
        ".call for {person}",
        "[hook me up|get me in touch] with {person}", ".{person} on the [phone|line]",
        "[give|make] {person} a [phone call|quick call|ring|bell|buzz]",
        "get {person} on [speaker|the phone|the line]",
        ".[it is|it's] time to [call|ring] {person}",
        "let me [talk|speak] [to|with] {person}",
    ),
    "add_todo": (
        "[note|write|jot down] {task} as a [to-do|task|todo]",
        "[put|add] [a new item|a new entry|an item] on <TODO>: {task}",
        ".I [have|need|still have|still need] to {task}, [add it|put it|write it|put that] "
        "[to|on] <TODO>",
        ".{task} is [a|another|one more|a new] [to-do|task][| for me]",
        ".[my|another|one more] [task|to-do]: {task}",
        "[make|turn] {task} [a|into a] [task|to-do]", "[extend|update] <TODO> with {task}",
        ".<TODO> [needs|should have|should say]: {task}",
        "[make sure|see that] {task} is on <TODO>", "[list|file|enter] {task} [under|on] <TODO>",
        "?[can|could] {task} [go|be put] on <TODO>",
    ),
    "add_to_cart": (
        "[buy|order|purchase|grab|get] [me |us |]{item}[| from the shop| from the store]",
        "[buy|order|purchase|grab|get] [me |us |]{quantity} {item:countable}",
        ".[I|we] [need|want|are out of|ran out of] {item}, [add|put] [it|them|some] [to|in] <CART>",
        ".[I|we] [need|want|would like] [to buy|to order] {quantity} {item:countable}",
        "[include|drop] {item} in <CART>", ".<CART> [needs|should have] {item}",
        ".{quantity} {item:countable} [for|in|into] <CART>",
        "[shop for|pick up] {item}[| for me]", ".[order|cart|basket]: {item}",
        "[add|throw] [some |another |]{item:countable} [in|into|to] <CART>",
        "?[can|could] [I|we] [get|have|buy|order] {quantity} {item:countable}",
    ),
    "set_light": (
        ".[it is|it's] [too dark|too bright|dark] in the {room}, [turn|switch] the "
        "[light|lights] {state}",
        "[lights|light|lamp] {state} in the {room}", ".{room}: [lights|light] {state}",
        "[put|have|get] the [light|lights] in the {room} {state}",
        "[bring|take|lower|raise|turn] the [light|lights] in the {room} [down |up |]to "
        "{state:percent}",
        ".{state:percent} [brightness|light] in the {room}",
        "[make|light up|colour] the {room} {state:colour}",
        ".[I want|I need|I'd like] {state:colour} light in the {room}",
        ".{state:colour} [light|lights] [in|for] the {room}",
        "?[can|could] the {room} [light|lights] [be {state:colour}|go {state}|be at "
        "{state:percent}]",
        "[change|switch] the {room} [lamp|lamps|light|lights] to {state:colour}",
        "[brighten|dim|adjust] the {room} to {state:percent}",
    ),
    "set_temperature": (
        ".[it is|it's|I am|I'm] [too |so |]cold in the {room}, [make it|heat it to|set it to] "
        "{degrees}[| degrees]",
        "[get|turn|warm|cool] the {room} [up |down |]to {degrees}[| degrees]",
        "[put|have|turn] the [heating|heater|radiator|thermostat] [in|of] the {room} [on|at|to] "
        "{degrees}", ".{room}[:| to| at] {degrees} degrees",
        "?[can|could] the {room} [be|get|go to] {degrees} degrees",
        "[bring|adjust|change] the [temperature|heat|climate] [of|in] the {room} to {degrees}",
        "[let|have] the {room} be {degrees} degrees", "hold the {room} at {degrees}[| degrees]",
        "[cool|heat] [down |up |]the {room}[,| until it is|:] {degrees}[| degrees]",
        ".[heating|thermostat|temperature] [in the|for the] {room}[:| to| at] {degrees}",
    ),
    "play_music": (
        ".I [am in the mood for|feel like|fancy] [some |]{artist}",
        "[play|put on] [a bit of|something from|anything by|music from|a tune by] {artist}",
        "[queue|cue|queue up|blast|spin] {title}[| by {artist}]",
        ".[music|song|next song]: {title}[| by {artist}]",
        "[turn on|switch on|fire up] [the song |the track |]{title}[| by {artist}]",
        "?[can|could] you [play|put on|stream] {title}[| by {artist}]",
        ".I [want|would love|need] to [dance to|sing along to|hear] {title}[| by {artist}]",
        "[start|begin] playing {title}[| by {artist}]",
        ".[some|a little] [music|tunes] [by|from] {artist}",
    ),
    "navigate": (
        "[get|lead|steer|direct] [me|us] to {destination}",
        ".I [am|want to be] on my way to {destination}, [show me the way|guide me|give me "
        "directions]",
        "?[which way is it|which way do I go|how far is it] to {destination}",
        "?where [is|do I find] {destination}, [and how do I get there|show me the way]",
        ".[route|navigation|way|navigate][:| to] {destination}",
        "[set|take] [a |the |]course [for|to] {destination}",
        "?[what's|what is] the [quickest|shortest|best] [route|road] to {destination}",
        "[help|let] me [get|find my way] to {destination}",
        ".I am lost, [take|bring|get] me to {destination}", "head to {destination}",
        ".[we|I] [have|need|must] to [get|go|drive|be driven] to {destination}",
    ),
    "translate": (
        "?[what's|what is|what would be] the {language} [word|words|phrase|expression] for {text}",
        "?how [is|would] {text} [in|translate to|translated to] {language}",
        ".{text} in {language}[, please|]", ".in {language}: {text}",
        "[give|tell] me {text} in {language}", "[express|render|phrase] {text} in {language}",
        ".I [need|want] to [say|write|tell someone] {text} in {language}",
        ".[translation|translate][:| of| to {language}:] {text}[| into {language}| in {language}]",
        "[convert|change] {text} [into|to] {language}",
        "?[can|could] you [put|translate|say] {text} [in|into] {language}",
        "teach me [to say|how to say|the {language} for] {text} in {language}",
    ),
    "calculate": (
        "?{expression} [is|equals|makes|gives] [what|how much]", ".{expression}", "?{expression}",
        "[give|get] me {expression}", "?can you [do|work out|calculate|add up] {expression}",
        "[evaluate|determine|find] {expression}", ".[math|maths|sum]: {expression}",
        ".I [need|want] the [answer|result] [to|of|for] {expression}",
        "?what [number|result] [is|do you get for|do I get for] {expression}",
        "[help me with|crunch|solve for me] {expression}", "?do you know {expression}",
        "[use|get] [the|a|your] calculator[:| for| on] {expression}",
        "?[what's|what is] the [sum|total|value|answer|result] [of|for|to] {expression}",
    ),
    "add_event": (
        "[put|pencil|write] [me |us |][in |down |]{title} [in|into] [my|the] [diary|agenda|"
        "schedule|"
        "planner] <DAY>[| at {time}]",
        ".I [have|have got|am going to] [the |a |]{title} <DAY>[| at {time}], [put it in|add it "
        "to] "
        "my [calendar|schedule|diary]",
        ".{title} [is|takes place] <DAY>[| at {time}], [add it to|put it in|save it in] [my|the] "
        "calendar", ".new [event|appointment|entry]: {title}[,|] <DAY>[| at {time}]",
        "[save|note|record] the date: {title}[,|] <DAY>[| at {time}]",
        "[update|fill] [my|the] calendar[:| with] {title}[,|] <DAY>[| at {time}]",
        "[arrange|organise|organize|set up] [the |a |]{title} <DAY>[| at {time}]",
        "?can [we|you|I] have [the |]{title} <DAY>[| at {time}] in [my|the] calendar",
        "[schedule|plan] {title} for {time} <DAY>",
    ),
    "create_invoice": (
        "[make|get|let] {customer} pay [me |us |]{amount}[, write the invoice|]",
        ".[new |]invoice[:| for| to] {customer}[,| over| of|:] {amount}",
        "[prepare|generate|raise|do|send out] [an|the|a new] [invoice|bill] [for|to] {customer}"
        "[,| of| over| for|:] {amount}",
        "[send|mail|email] [the|an] invoice [of|over|for] {amount} to {customer}",
        ".{customer} [should|must|has to] [be billed|be invoiced|be charged|pay] {amount}",
        "[put|write] {amount} on [an invoice|a bill] [for|to] {customer}",
        "?[can|could] you [bill|invoice|charge] {customer} [for |]{amount}",
        ".[we|I] [worked for|delivered to|helped] {customer}, [bill|invoice] them [for |]{amount}",
        "[request|ask for|demand] {amount} from {customer} [with|in] an invoice",
        "bill {amount} to {customer}",
    ),
    "enroll_course": (
        "[book|add|admit|get] {student} [into|on|onto|for] [the |]{course}[| course| class]",
        "[add|put] {student} [on|to|onto] the [list|student list|roster] [of|for] {course}",
        ".{student} [is joining|will join|will take|would like to take|takes|should be in] "
        "{course}",
        ".I [will|would like to|want to] [study|learn|attend|do|join] {course}[, sign me up|]",
        "[register|enlist|enter|enroll] {student} [for|in|on] the {course} [course|class|program]",
        "[reserve|get|book] [a place|a seat|a spot] [in|for] [the |]{course} [|course |class ]for "
        "{student}", ".[enrolment|registration|sign-up][:| for] {course}, {student}",
        "[let|have] {student} [join|take|attend] [the |]{course}[| course| class]",
        "?[is it possible to|may I|can I] [join|take|sign up for] the {course} [course|class]",
    ),
    "order_status": (
        "?[did|has] [my |]order [|number ]{order} [ship|shipped|arrive|arrived|go out|gone out]",
        "?[how long|how much longer] [does|will] [my |]order [|number ]{order} [take|need]",
        ".[I am|I'm|we are] [still |]waiting for order [|number ]{order}[, where is it|]",
        ".[status|tracking|order status][:| of| for] [order |number |]{order}",
        "[find|trace|locate|follow] [my |the |]order [|number ]{order}",
        "[see|find out|check] [where|whether|if] [my |]order [|number ]{order} is[| on its way]",
        "?when [can I expect|do I get|will I get|is] [my |]order [|number ]{order}",
        "?[what's|what is] [going on with|happening with|up with] order [|number ]{order}",
        ".order [|number ]{order} [has not arrived|is not here|is late], [where is it|check it]",
    ),
    "refund_order": (
        ".I [am not happy with|don't want|do not want|don't like] order [|number ]{order}[, "
        "refund it|"
        ", take it back|, I want my money back]",
        "[give me|get me|get] [my|the] money back for order [|number ]{order}[| because {reason}]",
        "[reverse|cancel|undo|take back] [and refund |]order [|number ]{order}[| because {reason}]",
        ".[refund|return][:| for| of] order [|number ]{order}[,| because] {reason}",
        "[process|arrange|issue|file] [a|the] [refund|return] [of|for] order [|number ]{order}"
        "[| because {reason}]",
        "?[could|can] order [|number ]{order} be [refunded|returned|sent back][| because {reason}]",
        ".[I'm returning|I want to send back] order [|number ]{order}[| because {reason}]",
        "pay me back for order [|number ]{order}[| because {reason}]",
    ),
    "find_customer": (
        "?[what|who] [do we know about|is our customer called] {name}",
        "[get|fetch|load|display|bring up] [the |][record|details|data|file|profile] [of|for] "
        "[customer |the customer |]{name}",
        ".customer [record|file|search|look-up|lookup][:| for] {name}", ".customer[:|] {name}",
        "?[is|do we have] {name} [in the system|in our database|on file|among our customers]",
        "[search|look through|check] [our|the] [database|customers|records|customer list] for "
        "{name}",
        ".I [need|want] [the |]customer [details|data|information|info|record] [of|for|on] {name}",
        "find {name} [among|in] [our|the] customers", "?who is customer {name}",
        "locate [the |][customer|client] {name}", "[show|find|look up] [the |our |]client {name}",
    ),
    "checkout": (
        "[finish|complete|finalise|place|submit] [my|the] [order|purchase] [with|using] {payment}",
        "[finish|complete|finalise|place|submit] [my|the] [order|purchase]",
        "[settle|pay] [with|using|by] {payment}[| now]",
        ".I [will|want to] pay [with|by] {payment}",
        ".[I am|I'm|we are] [done|finished] shopping[, let me pay|, check out|, take {payment}]",
        "[take|bring|send] me to [the |]checkout", ".[checkout|payment][:| with|,] {payment}",
        "[use|charge] {payment} [for|to pay for] <CART>", "buy [what is in |everything in ]<CART>",
        "?[can|could] [I|we] pay [for <CART> |][with|by|using] {payment}",
        ".that is [all|everything][, check out| for today, check out][| with {payment}]",
    ),
    "convert_currency": (
        "?{amount} {source} [is|are|makes|equals] how [much in|many] {target}",
        "?[what's|what is] {amount} {source} [worth |]in {target}",
        ".[exchange|conversion|convert|exchange rate][:| of] {amount} {source} [to|into|in] "
        "{target}",
        "[give|tell|show] me {amount} {source} in {target}",
        "?how much {target} [do|will|would] I get for {amount} {source}",
        "?[what|how much] do I [get|pay] in {target} for {amount} {source}",
        "?what is the [value|worth|price] of {amount} {source} in {target}",
    ),
    "set_reminder": (
        ".[don't|do not] let me forget to {task}[| at {time}| <DAY>]",
        ".I [must not|should not|mustn't|can't] forget to {task}[| at {time}| <DAY>][, remind me|]",
        "[tell|nudge|ping|alert|prompt] me [at {time}|<DAY>] to {task}",
        "[tell|nudge|ping|alert] me to {task} [at {time}|<DAY>|at {time} <DAY>]",
        ".[a |]reminder[:| to] {task}[,| at| for] {time}", ".reminder <DAY>[:| to] {task}",
        ".at {time} I [have|need] to {task}[, remind me|]", "help me remember to {task}[| <DAY>]",
        "[put|place|leave] a reminder [for|at] {time}[:| to] {task}",
        "make sure I [remember|don't forget|do not forget] to {task}[| at {time}| <DAY>]",
        "schedule a reminder to {task}[| at {time}| <DAY>]",
        "?will you remind me to {task}[| <DAY>]",
        ".<WANT> to be reminded to {task}[| at {time}| <DAY>| at {time} <DAY>]",
    ),
    "take_note": (
        "[remember|memorise|record|keep in mind] [that|this:] {text}",
        ".for the record[:|,] {text}",
        "[save|store|keep] this[:| note:| for later:] {text}", ".[remember|memo|idea][:|,] {text}",
        "[put|get|write] this [down|on paper|in my notes|in my notebook][:|,] {text}",
        ".my note[:| says:|,] {text}",
        "[open|start|begin] a [new |]note[:| with| that says| saying] {text}",
        ".I want to [remember|note|write down] that {text}", ".[a |one ]note for me: {text}",
        "[add|append] to my [notes|notebook]: {text}", "[document|log] that {text}",
        "?can you [note|write down|remember] that {text}",
    ),
    "book_table": (
        ".[we|I] [want|would like|plan] to [eat|dine|have dinner|have lunch] at {restaurant}[| at "
        "{time}][, book a table|, get us a table]",
        ".[table|reservation|dinner|booking][:| at| for {people} at] {restaurant}[| at {time}]",
        ".{people} of us [want|would like] to [eat|dine] at {restaurant}[| at {time}]",
        "[arrange|organise|get|reserve] [seats|places|dinner|lunch] for {people} at {restaurant}"
        "[| at {time}]",
        "[see|check|find out] [if|whether] {restaurant} has a table for {people}[| at {time}]",
        "[put us down|book us|get us in] [for {people} |]at {restaurant}[| at {time}]",
        "?[is there|do they have] a [free |]table for {people} at {restaurant}[| at {time}]",
        "[book|reserve] {restaurant} for {people}[| people| persons| guests][| at {time}]",
        "[call|ring] {restaurant} and [book|reserve] a table for {people}",
        "make a [booking|reservation] [for {people} |]at {restaurant} for {time}",
    ),
    "book_taxi": (
        ".[I|we] [need|want|have] [a ride|a lift|a car|to be driven] to {destination}[| at {time}]",

        "[have|get] a [taxi|cab] [pick me up|come|here] at {time} [to go |to take me |]to "
        "{destination}", ".[taxi|cab|ride] [at|for] {time}[:|,] to {destination}",
        "[get|order|book] [me |us |]a [ride|car|driver] to {destination}[| at {time}| for {time}]",
        "?[is there|could I have|may I have] a [taxi|cab] to {destination}[| at {time}]",
        ".I [am taking|will take|want to take] a [taxi|cab] to {destination}[| at {time}]",
        "reserve a [taxi|cab] to {destination}[| at {time}]",
    ),
    "lock_door": (
        "[secure|bolt|shut and lock|close and lock] the {door}[| please| now| tonight]",

        ".[lock|locked][:|,] the {door}", ".the {door} is [still |]open, lock it",
        "[turn the key in|put the lock on|put the bolt on] the {door}", "?is the {door} locked",
        "[see|check] [if|whether] the {door} is locked",
    ),
    "find_recipe": (
        ".I [want|would like|plan|need] to [cook|make|bake|prepare] {dish}[| tonight| today]",
        "?what [do I need|goes into|ingredients go into|do you put in|do I put] [for|in|into] "
        "{dish}",
        "?[what's|what is|do you have|do you know] [a|the] [good |easy |]recipe for {dish}",
        "help me [cook|make|bake|prepare] {dish}", ".{dish} [recipe|instructions|ingredients]",
        "[give|tell] me the [steps|ingredients|instructions] for {dish}",
        ".[cooking|recipe|tonight we cook][:|,] {dish}",
        "?how [does one|would I|should I] [make|cook|prepare] {dish}",
        "[open|bring up|pull up] [a|the] recipe [for|of] {dish}", "walk me through {dish}",
    ),
    "get_news": (
        "?[what is|what's] [happening|going on|up] [with|in|around] {topic}",
        "?[what|anything] [has happened|new|happened] [with|in|about] {topic}[| today| lately]",
        "[catch me up|bring me up to date|update me|brief me] on {topic}",
        "[keep me posted|fill me in] [on|about] {topic}", ".[headlines|latest|today's news][:| on| "
        "about] {topic}", ".{topic} [news|headlines|updates]",
        "?[what|which] [headlines|stories|articles] are there [on|about] {topic}",
        ".I [want|would like|need] [the |some |to hear the ][latest|news|headlines] [on|about] "
        "{topic}",
        "?[have you heard|do you have] [anything new|news|the latest] [on|about] {topic}",
        "[search|check|scan] the [news|papers|headlines] for {topic}", "?any updates on {topic}",
    ),
    "define_word": (
        ".[definition|meaning|dictionary][:| of] {word}",
        ".{word}[, |: ][meaning|definition|define it]",
        ".I [don't|do not] [know|understand] [the word |what ]{word}[| means][, explain it|]",
        "[check|open|search] the dictionary for {word}",
        "[clarify|describe] the [word|term] {word}",
        "?what [kind of |sort of |]word is {word}", "?[can|could] you [define|explain] {word}",
        ".someone [said|wrote|called me] {word}, [what does it mean|what is that]",
        "give me the [dictionary |]entry for {word}",
        "?[do you know|can you tell me] what {word} [means|is]",
    ),
    "say": (
        "[speak|voice|pronounce|shout|announce|call out][:| out loud:| aloud:] {text}",
        "[let the speaker|have the speaker] say[:|] {text}",
        ".[speaker|announcement|out loud]: {text}",
        "[tell everyone|announce to everyone|say to the room][:|] {text}",
        "?[can|could|would] you [speak|read|say] [this |aloud |out |][aloud|out loud]: {text}",
        "[utter|recite|echo] \"{text}\"", "[read out|speak out] [loud |]\"{text}\"",
        "[repeat|echo][:| back:] \"{text}\"", "use your voice[:| to say] {text}",
    ),
}

MORE_OFF_TOPIC: tuple[str, ...] = (
    "?what is the [capital|population|flag] of {x:city}",
    "?who is {x:person}'s [boss|friend|cousin]",
    "?[when|why] did {x:artist} [break up|start|become famous]",
    "?is {x:topic} [dangerous|boring|fun]",
    "[recommend|suggest] [a|me a] [book|film|hobby|present] about {x:topic}",
    "?are {x:item} [healthy|expensive|recyclable]",
    "?what [colour|shape|size] [is|are] {x:item}", ".[thank you|thanks|well done|never mind|bye]",
    ".I [love|hate|miss] [{x:topic}|{x:city}|{x:person}]", "[cheer me up|entertain me|amuse me]",
    "?[will|can] [robots|people|cats] ever [like|understand] {x:topic}",
    "?what should I [wear|give {x:person}|think about {x:topic}]",
    "?[who|what] is [better|older], {x:artist} or {x:artist}",
    "[argue|discuss|chat|talk] with me about {x:topic}",
    "?did {x:person} [win|lie|laugh|sleep well]",
    "[paint|build|sew|knit] me [a|some] [house|boat|hat|chair]",
    "?how do [birds|planes|fish|magnets] [fly|swim|work]", "?what [day|year|season] is it",
)

MORE_OPENERS = [
    "I was wondering if you could ", "do me a favour and ", "be so kind and ", "be a dear and ",
    "when you have a moment, ", "if you can, ", "if possible, ", "could you kindly ",
    "can you quickly ", "I would like you to ", "it would be great if you could ", "go ahead and ",
    "go and ", "kindly ", "let's ", "ah, ", "alright, ", "right, ", "oh and ", "so ", "um, ",
    "please could you ", "please can you ", "assistant, ", "I'd appreciate it if you would ",
    "you should ", "we need you to ", "quick, ", "first ", "try to ", "help me ",
]
MORE_CLOSERS = [
    " for me", " if you can", " when you can", " right away", " now", " as soon as possible",
    ", will you", ", would you", ", ok", ", cheers", ", much appreciated", " for me, please",
]
