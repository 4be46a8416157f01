"""Word lists that the demo model's requests are made of; all text is our own."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """Split at spaces."""
    return text.split()


def phrases(text: str) -> list[str]:
    """Split at bars."""
    return [part.strip() for part in text.replace("\n", " ").split("|") if part.strip()]


def pairs(text: str) -> list[str]:
    """Expand ``head: tail, tail | head: tail`` into full phrases."""
    result = []
    for group in phrases(text):
        head, tails = group.split(":")
        result += [f"{head.strip()} {tail.strip()}" for tail in tails.split(",")]
    return result


PEOPLE = words("""
Maya Leo Felix Nora Tom Ines Omar Priya Jonas Clara Hugo Amira Ben Lucia Ravi Elena Sam Yara
Oscar Ida Karim Lena Paul Zoe Mateo Freya Noah Aisha Max Greta Ivan Rosa Emil Tara Victor Hana
Luis Mina Peter Sofia Adam Vera Diego Alma Finn Leila Marco Eva Simon Kira Anton Jana Rafael Nina
Samir Petra Julian Dana Tariq Olga Erik Bella Arjun Thea Bruno Selma Kenji Ruth Milo Farah Oliver
Agnes Pavel Carmen Theo Signe Nabil Edith Lars Sunita Gabriel Maud Stefan Layla Henry Birgit
Andre Wanda Tobias Fiona Isaac Mira Chen Paula Viktor Asha Jakob Rita Malik Judith Dario Esme
Walter Naomi Kofi Lotte Marek Salma Arthur Greer Timo Beatriz Idris Hannah Stella Nils Uma Mum
Dad Grandma Grandpa""")
SURNAMES = words("""
Larsen Okafor Meyer Costa Novak Patel Rossi Lindqvist Haddad Moreau Kovac Tanaka Silva Becker
Olsen Marin Fischer Nowak Duarte Kaya Brandt Ahmadi Keller Santos Berg Ivanova Weaver Hughes
Castillo Janssen Farrow Mbeki Holt Petrov Quinn Sato Vogel Lund Arslan Baker Reyes Dahl Chowdhury
Stone Wirth Palmer Ferrari Adeyemi Koch Murphy Shah Torres Webb Zhang Eklund Ramos Fuchs Doyle""")
CITIES = phrases("""
Oslo|Paris|Lisbon|Berlin|Madrid|Rome|Vienna|Prague|Dublin|Athens|Warsaw|Budapest|Helsinki|
Stockholm|Copenhagen|Zurich|Geneva|Brussels|Amsterdam|Hamburg|Munich|Milan|Naples|Turin|Porto|
Seville|Valencia|Lyon|Nantes|Bordeaux|Leeds|Bristol|Glasgow|Cardiff|Belfast|Cork|Galway|Bergen|
Malmo|Tampere|Riga|Tallinn|Vilnius|Krakow|Gdansk|Brno|Graz|Salzburg|Zagreb|Split|Belgrade|Sofia|
Bucharest|Istanbul|Ankara|Izmir|Cairo|Tunis|Rabat|Lagos|Accra|Nairobi|Dakar|Kampala|Lusaka|
Cape Town|Durban|Delhi|Mumbai|Chennai|Kolkata|Pune|Karachi|Lahore|Dhaka|Colombo|Bangkok|Hanoi|
Jakarta|Manila|Seoul|Busan|Tokyo|Osaka|Kyoto|Sapporo|Taipei|Shanghai|Sydney|Perth|Brisbane|
Hobart|Auckland|Wellington|Toronto|Montreal|Ottawa|Calgary|Vancouver|Boston|Chicago|Denver|
Seattle|Portland|Austin|Dallas|Houston|Atlanta|Miami|New York|San Diego|Mexico City|Bogota|
Quito|Lima|Santiago|Salvador|Recife""")
ROOMS = phrases("""
kitchen|bedroom|living room|bathroom|hallway|office|garage|basement|attic|dining room|
guest room|study|nursery|laundry room|playroom|workshop|conservatory|lounge|library|den""")
DOORS = phrases("""
front door|back door|garage door|side door|patio door|cellar door|balcony door|main door|
garden door|shed door|kitchen door|office door|basement door|terrace door|workshop door""")
TASKS = pairs("""
water: the plants, the garden, the basil, the roses, the lawn | clean: the oven, the windows, the
fridge, the gutters, the fish tank | pay: the rent, the gas bill, the phone bill, the dentist,
the plumber | buy: new batteries, cat food, light bulbs, a birthday card, running shoes, stamps |
feed: the cat, the chickens, the rabbits, the neighbours' dog | return: the library books, the
drill, the blue dress, the rental car | fix: the bike, the door handle, the leaking tap, the
shelf, the printer | wash: the car, the curtains, the dog, the bed sheets | renew: my passport,
the car insurance, my gym card, the parking permit | book: a haircut, the train tickets, a
dentist visit, a hotel room | empty: the dishwasher, the bins, the letter box | pick up: the
kids, the dry cleaning, a parcel, my glasses | charge: the camera, my headphones, the drill
battery | print: the boarding pass, the tax form, the photos | back up: my laptop, the holiday
photos | sharpen: the knives, the pencils | iron: the shirts, my suit | sign: the contract, the
school form | order: printer ink, new glasses, a cake | take out: the rubbish, the recycling |
check: the tyre pressure, the smoke alarm, the oil level | bake: a lemon cake, bread rolls,
banana bread | paint: the fence, the ceiling, the garden chairs | walk: the dog | mow: the lawn,
the back garden | take: my medicine, the vitamins, the cat pills | defrost: the chicken, the soup
| tidy: my desk, the cupboard, the toy box | pack: my suitcase, the lunch boxes | mend: the torn
jacket, my socks | measure: the window frame, the hallway rug | descale: the kettle, the coffee
machine | oil: the hinges, the bike chain | trim: the hedge, the beard | visit: the bank, the
tailor""")
MESSAGES = pairs("""
dinner: is ready, is at seven, is getting cold, was lovely | I: am running late, am on my way,
will be there soon, missed the bus, forgot my keys, am stuck in traffic, just got home, love the
gift, need a lift, will call you later, found your umbrella, am outside | the meeting: is
cancelled, starts at nine, has moved upstairs, went well | the train: is late, left early, was
packed | the kids: are asleep, are hungry, had fun today, finished their homework | the parcel:
has arrived, is at reception, never came | we: need more milk, are at the cafe, won the match,
landed safely, saved you a seat | the car: is fixed, needs petrol, is parked outside | lunch: is
on me, was great, is in the fridge | the plumber: came by, is here, comes at noon | your keys:
are under the mat, are with me | the party: starts at eight, is off, was fun | my flight: is
delayed, lands at ten, was cancelled | the doctor: says hello, called back | the concert: is sold
out, was amazing | the shop: is closed, opens at nine | the tickets: are booked, came today |
practice: is over, starts late today | the dog: needs a walk, ate my lunch | nobody: is home yet,
has the key | the cake: is delicious, needs more sugar | the report: is finished, looks good,
needs your name | my phone: is dead, is in the car, was stolen | the heating: is off, works again
| the baby: is awake, said a word | your jacket: is at my place, looks great | the bank: opens
late, needs your signature | the beach: was lovely, is empty | the roof: is leaking, is fixed |
the painter: wants cash, starts early | our hotel: has a pool, is near the port | the match: is
on tonight, was a draw | my boss: says yes, wants a meeting | the soup: is too hot, tastes great""")
GREETINGS = pairs("""
happy: birthday, new year, anniversary | see you: soon, at the gym, on Sunday, after work | good
luck: today, with the exam, out there | thanks: a lot, for the flowers, for your help, for dinner
| congratulations: on the baby, on your new job | well: done, played | get: well soon, home safe
| sorry: about yesterday, for the noise | call me: back, when you land | have: a good trip, fun
today""")
NOTES = pairs("""
the wifi code: is 4417, has changed | the spare key: is under the pot, hangs by the stairs | the
boiler: needs a new filter, was serviced in May | the landlord: comes every spring, likes short
emails | paint colour: is sage green, was too dark | the neighbours: are away until June, have
our ladder | my locker: is number 52, sticks a bit | the printer: only likes thick paper, jams
when cold | the good cheese shop: is on Mill Street, closes early | shoe size: is 42 | the red
wine: was too sweet, goes with pasta | the bus: leaves at ten past, skips our stop | the meter
reading: was 8812, looked too high | the old bike: needs new brakes, has a flat tyre | the
recipe: needs less salt, works with oats | the dentist: moved to Park Lane, opens at eight | the
tall ladder: is in the shed, is broken | plan B: is the museum, costs less | the roof: leaks near
the chimney, needs new tiles | gate code: is 7730, ends with nine | the tomato seeds: go out in
May, need more light | idea: a book about lighthouses, a podcast about bread, a game about bees |
the client: prefers blue, wants a shorter text, pays late | the sofa: is two metres wide, will
not fit | the piano: needs tuning, weighs too much | the blue folder: is upstairs, holds the tax
papers | aunt Rosa: likes dark tea, hates surprises | the back tyre: loses air, is nearly new |
the fern: needs shade, got too dry | the gym: closes at ten, has new lockers | the guest bed:
squeaks, needs a mattress | bin day: is Thursday, moved by a week""")
ITEMS = phrases("""
milk|oat milk|butter|brown bread|eggs|bananas|green apples|lemons|tomatoes|onions|garlic|
potatoes|carrots|spinach|mushrooms|rice|pasta|lentils|chickpeas|olive oil|sea salt|black pepper|
sugar|flour|honey|peanut butter|strawberry jam|cheddar|goat cheese|yogurt|cream|chicken|salmon|
tuna|tofu|coffee beans|green tea|orange juice|sparkling water|dark chocolate|biscuits|crackers|
almonds|raisins|cereal|ice cream|frozen peas|dish soap|sponges|paper towels|toilet paper|
toothpaste|shampoo|hand soap|candles|matches|light bulbs|batteries|trash bags|dog food|
cat litter|bird seed|wool socks|rain boots|a desk lamp|a garden hose|a yoga mat|a water bottle|
a phone charger|a frying pan|a bread knife|a tea pot|a wall clock|a door mat|a laundry basket|
a bath towel|a blue notebook|printer paper|ink pens|sticky tape|glue sticks|picture hooks|
a screwdriver|paint brushes|a tape measure|wood screws|potting soil|tulip bulbs|a watering can|
a bike pump|a tennis racket|a chess set|a jigsaw puzzle|a wool scarf|sun cream|plasters|
cough drops|basmati rice|maple syrup""")
COUNTABLE = phrases("""
lemons|onions|bananas|apples|eggs|candles|light bulbs|batteries|notebooks|pens|bagels|muffins|
mugs|forks|towels|pillows|avocados|limes|peaches|pears|plums|folders|envelopes|plates|bowls|
mangoes|tomatoes|carrots|cucumbers|peppers|tea boxes|soap bars|bread rolls|water bottles|
milk cartons|soup cans|paint brushes|plant pots|picture frames|hooks|cushions|wine glasses|
desk lamps|chairs|socks|spoons|knives|buttons|magnets|batons|stickers|markers|pencils|baskets|
lanterns|ropes|hinges|bolts|tiles|jars|lids|trays|mirrors|blankets""")
SONGS = phrases("""
Blue Harbor|Paper Moons|Slow River|Night Train Home|Golden Hours|Winter Garden|Silver Line|
Morning Glass|Lost Umbrella|Seven Lanterns|Quiet Storm|Velvet Road|Open Windows|Summer Static|
Falling Upward|Northern Rain|Dancing Alone|Copper Sky|Little Planets|Wild Orchard|Echo Valley|
Marble Hearts|Second Sunrise|Broken Compass|Honey Fields|Distant Drums|Late Bloomers|Salt Air|
Crystal Avenue|Sleepy Giants|Midnight Ferry|Electric Meadow|Yellow Bicycle|Stone Bridges|
Soft Thunder|Empty Theater|Kites|Homecoming|Afterglow|Driftwood|Wanderer|Fireflies|Satellite|
Horizons|Feather|Undertow|Cinnamon Skies|Harvest Waltz|Tiny Oceans|Rooftop Birds|
Evening Letters|Desert Piano|Cloud Parade|Ivory Tower Blues|Green Lights|Last Tram|Maple Street|
Hollow Tree|Ten Thousand Lamps|Forget The Weather|Postcards|Sundial|Amber Room|Whistling Kettle|
Old Sailor|Glass Mountain""")
ARTISTS = phrases("""
The Velvet Owls|Mira Solen|Northbound|The Tin Lions|Ada Marlow|Paper Foxes|Juno Fields|
Kite Club|Silent Harbor|The Lemon Trees|Otis Brandt|Ruby Calder|Moonlit Few|The Gravel Kings|
Ella Voss|Cold Lanterns|Desmond Ray|The Wrens|Sable Choir|Indigo Motel|Theo Lark|
The Night Bakers|Coral Days|Hazel Quartet|Nils Aurora|The Rusty Bells|Violet Static|Marlo Dean|
Big Blue Tent|Sister Comet|The Apple Thieves|Luna Parke|Felt Animals|Captain Snow|Wicker Band|
Ivy Monroe|Polar Club|The Hems|Harlan Creek|The Quiet Engines|Nova Bright|Tall Ships Club|
Sunday Rovers|Opal Reed|The Pocket Kings|Marigold Five|Dusty Anchors|Lia Frost|The Paper Boats|
Echo Brothers|Fern Holloway|Glass Tigers|The Slow Comets|Rowan Black|Mint Parade|Silver Aunties|
The Window Birds|Cleo March|Basement Choir|The Loud Librarians|Ezra Finch|Velour|Honey Machine|
Parallel Cats""")
LANGUAGES = words("""
French German Spanish Italian Portuguese Dutch Danish Swedish Norwegian Finnish Polish Czech
Greek Turkish Arabic Hindi Bengali Urdu Japanese Korean Chinese Thai Vietnamese Swahili Hungarian
Romanian Ukrainian Irish Welsh Icelandic Hebrew Tamil Malay Croatian Estonian Latvian""")
PHRASES = phrases("""
good morning|good night|thank you|thank you so much|where is the station|how much is this|
I am lost|see you tomorrow|the bill is wrong|happy birthday|I love you|excuse me|
what time is it|my name is Maya|I am hungry|nice meeting you|the soup is cold|
two coffees with milk|I need a doctor|where is the museum|is this seat free|have a good trip|
welcome home|the train is late|get well soon|I am allergic|no sugar for me|can you help me|
how are you|long time no see|the key is broken|open the window|I like your hat|we are closed|
turn left here|a glass of water|happy new year|the shop opens late|my bag is missing|
I am a student|we have a reservation|this is delicious|cheers|goodbye|congratulations|good luck|
sweet dreams|sorry|thanks a lot|what a lovely day|the cat is sleeping|I miss you|
keep the change|is breakfast included|safe travels|never mind|where are the toilets|
I do not understand|speak more slowly|he is my brother|she is a teacher""")
EVENTS = phrases("""
team lunch|dentist visit|yoga class|parent evening|board meeting|book club|piano lesson|
car service|birthday party|project review|sales call|budget meeting|swim practice|job interview|
house viewing|guitar lesson|wine tasting|film night|family dinner|staff training|haircut|
design workshop|garden party|eye test|choir practice|football match|school play|product launch|
blood test|weekly sync|press briefing|photo shoot|chess club|baby shower|game night|quiz night|
planning session|client visit|flu shot|vet visit|tax meeting|tennis match|pottery class|
museum tour|coffee break|barbecue|picnic|rehearsal|farewell drinks|code review|supplier call|
strategy day|charity run|street market|poetry reading|music festival|physio session|
language exchange|mortgage meeting|kitchen inspection|boat trip|hiking day|wedding rehearsal|
cooking class|fire drill|site visit|school fair|town hall|science fair|budget review|
sewing class|concert night|cello lesson|boiler service""")
COMPANIES = phrases("""
Northwind Bakery|Harbor Tools|Bluepeak|Fennel Studio|Marlow Print|Oakline|Tidewater Labs|
Copper Fox|Lumen Works|Redbrick Cafe|Alder Design|Pinecrest Farm|Silverlane|Quarry Books|
Juniper Legal|Millstone Foods|Cobalt Freight|Willow Dental|Sunray Glass|Fairmont Bikes|
Ember Media|Kestrel Air|Larkspur Homes|Granite Gym|Velvet Travel|Orchard Street Deli|Paperboat|
Brightwell|Stonebridge|Meadow Vets|Anchor Plumbing|Cedar Hotels|Nimbus Cloud|Tallow Candles|
Rook Security|Saffron Kitchen|Hilltop Dairy|Wavelength|Foxglove Florist|Ironside Gear|
Daybreak Coffee|Lantern Films|Mosaic Tiles|Riverbend Motors|Summit Rentals|Topaz Jewels|
Union Laundry|Verdant Garden|Westgate Supply|Yarrow Spa|Apex Roofing|Birch Catering|Canal Boats|
Dune Fitness|Elder Books|Ferry Logistics|Garnet Finance|Heron Energy|Inkwell Press|
Jasper Stoneworks|Kite Insurance|Lotus Massage|Maple Toys""")
COURSES = phrases("""
Botany|Astronomy|Statistics|Pottery|Modern History|Creative Writing|Linear Algebra|Web Design|
Organic Chemistry|Photography|Data Science|Film Studies|Microeconomics|Philosophy|Music Theory|
First Aid|Public Speaking|Watercolor|Marine Biology|Game Design|Genetics|Robotics|Ceramics|
Geology|Accounting|Digital Marketing|Ancient Greek|Art History|Human Anatomy|Bookkeeping|
Carpentry|Graph Theory|Machine Learning|Nutrition|World Religions|Urban Planning|Screenwriting|
Sign Language|Welding|Thermodynamics|Number Theory|Social Psychology|Garden Design|Bread Baking|
Sound Engineering|Logic|Calculus|Journalism|Animation|Meteorology|Anthropology|Electronics|
Fashion Design|Archaeology|Cell Biology|Folk Dance|Sculpture|Typography|Quantum Physics|
Interior Design|Wine Making|Criminal Law|Public Health|Set Theory|Digital Drawing|Podcasting|
Chess Strategy|Roman History""")
PLACES = phrases("""
the airport|the train station|the library|the harbor|the museum|the hospital|the city hall|
the stadium|the zoo|the old bridge|the market square|the swimming pool|the post office|
the nearest pharmacy|the botanical garden|the opera house|the bus terminal|the town center|
Mill Road 12|Station Street 4|Park Lane 88|Harbor Street 31|Elm Avenue 7|Church Road 19|
Castle Hill|River Walk|North Beach|Central Park|Maple Grove|Lakeside Mall|Green Valley School|
the university|the dentist|the hardware store|the gas station|the campsite|the ski lift|
Rose Garden Hotel|Victoria Square|Bell Tower|the court house|the ferry dock|the science center|
Windmill Farm|Forest Drive 2|King Street 140|the art gallery|the petrol station|
the fire station|the town theater|the city park|the playground|the flower market|the car wash|
the big supermarket|the old lighthouse|the river beach|Linden Square|Oak Lane 9|
Bridge Street 66|Sunset Boulevard 15|Hill Road 203|Cherry Court|Pine Street 18|Queens Park|
West Gate|Otter Lake|Swan Hotel|Eagle Mountain|the concert hall|the tax office|
the animal shelter|the bike shop|the primary school""")
RESTAURANTS = phrases("""
Blue Lantern|Olive Branch|Casa Verde|The Copper Pot|Lotus House|Nonna Pia|Sakura Garden|
Golden Fig|Bistro Lune|The Salty Dog|Mango Tree|Red Pepper|Taverna Nikos|Little Saigon|
Fireside Grill|Pasta Corner|Green Bowl|Harbor View|El Camino|Spice Route|The Old Mill|
Tandoor Palace|Petit Jardin|Noodle Barn|Sunflower Cafe|Black Pearl|Rustica|Umami|Zafran|Piccolo|
Marigold|Cedar Table|Juniper|Oyster Shed|Crossroads Diner|Garden Terrace|The Hungry Bear|
Mesa Roja|Fishbone|Wild Thyme|Trattoria Sole|Bamboo Kitchen|Lemon Grove|The Brass Spoon|
Chez Odette|Sea Salt|Dragon Well|Pepe Rosso|The Green Door|Kebab House|Luna Rossa|Maple Kitchen|
Hanoi Corner|The Thirsty Crow|Bella Vista|Cafe Mimosa|Curry Leaf|Stone Oven|The Glass House|
Rice Paper|La Paloma|Plum Tree|Burger Yard|Soup Station|Vine Street Grill|The Blue Door|
Izakaya Nori|Granary""")
LABELS = words("""
pasta eggs tea laundry pizza bread rice workout nap meditation cookies roast study break chicken
oven cake soup plank yoga potatoes dough reading homework coffee parking sauna stretching
marinade lasagna quiche piano dishes shower noodles dumplings broth stew brownies tofu granola
jam sourdough risotto porridge bath ironing phone mask puzzle chess debate sprint drill kettle
cupcakes fondue custard pudding candle varnish glue battery""")
DISHES = phrases("""
lentil soup|apple pie|mushroom risotto|banana bread|pad thai|fish tacos|beef stew|
vegetable curry|pancakes|lasagna|ratatouille|tomato soup|falafel|chicken pie|lemon cake|ramen|
shakshuka|goulash|potato salad|onion tart|paella|spinach quiche|carrot cake|chili|gnocchi|
fried rice|pea soup|cheese scones|stuffed peppers|pumpkin soup|bean burgers|cinnamon rolls|
dumplings|naan|hummus|black bean chili|rhubarb crumble|salmon teriyaki|garlic noodles|plum jam|
oat cookies|pierogi|corn bread|beetroot salad|bean soup|fish pie|egg curry|apple strudel|
plum cake|cheese souffle|roast chicken|baked beans|leek soup|tomato pasta|vegetable stew|
chocolate mousse|rice pudding|pear tart|tuna salad|garlic bread|potato pancakes|lamb stew|
miso soup|blueberry muffins|onion soup|spring rolls|cabbage rolls|mushroom pie""")
TOPICS = phrases("""
football|space travel|local elections|electric cars|the stock market|climate change|tennis|
solar power|farming|housing prices|robotics|basketball|cinema|public transport|medicine|schools|
wildfires|volcanoes|trade|chess|fashion|ocean research|music awards|cycling|wind energy|museums|
archaeology|cricket|food prices|batteries|whales|skiing|high speed trains|bees|theatre|tourism|
coffee farming|satellites|ice hockey|forestry|railways|video games|drones|recycling|fishing|
rugby|bridges|air travel|gardening|astronomy|inflation|energy prices|wages|start-ups|telescopes|
earthquakes|comets|wolves|vaccines|water shortages|bus strikes|city planning|the olympics|
surfing|opera|book prizes|river floods|nuclear fusion|data privacy""")
RARE_WORDS = words("""
serendipity gossamer quixotic ephemeral lucid petrichor ballast cadence dapper elusive furtive
gregarious halcyon idyllic jovial keen languid mellow nebulous opaque placid quaint resilient
sonder tacit umbrage verbose wistful zeal brevity candor dormant effusive frugal glib hapless
inert jaunty knack lament meander novice obtuse pensive rustic solace tenuous uncanny vivid wry
austere benign coy deft eerie feeble gaunt hubris impasse jargon kindle lithe morose nimble
ornate prudent quell""")
REASONS = pairs("""
it: arrived broken, came too late, never arrived, was the wrong size, stopped working, has a
scratch, is too small, smells odd, was too loud, does not fit, leaks, was a gift, makes noise,
leaks oil, feels cheap, is too heavy | the color: is wrong, faded, looks different | the box: was
empty, was damaged, was open | a part: is missing, fell off | the seam: is torn, came apart | the
screen: is cracked, flickers | the zip: is stuck, broke | the handle: came off, is loose | the
glass: is cracked, was scratched | the label: is wrong, is missing | the battery: is dead, gets
hot""")
CURRENCIES = phrases("""
euros|dollars|pounds|yen|francs|kronor|rupees|zloty|pesos|lira|yuan|won|baht|dirhams|rand|reais|
shillings|forint|dinars|ringgit""")
PAYMENTS = phrases("""
my credit card|my debit card|a gift card|bank transfer|cash|my points|store credit|
my bonus card|my work card|a voucher|direct debit|my savings card|my phone|the family card|
the company card""")
COLOURS = words("red blue green yellow orange purple pink white violet teal amber turquoise")
WEEKDAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NEAR_DAYS = phrases("today|tomorrow|tonight|this evening|tomorrow morning|this afternoon")
MINUTES = words("00 05 10 15 20 30 40 45 50")
UNITS = words("minutes minutes minutes seconds hours")

LISTS: dict[str, list[str]] = {
    "person": PEOPLE, "surname": SURNAMES, "city": CITIES, "room": ROOMS, "door": DOORS,
    "task": TASKS, "message": MESSAGES, "greeting": GREETINGS, "note": NOTES, "item": ITEMS,
    "countable": COUNTABLE,
    "song": SONGS, "artist": ARTISTS, "language": LANGUAGES, "phrase": PHRASES, "event": EVENTS,
    "company": COMPANIES, "course": COURSES, "place": PLACES, "restaurant": RESTAURANTS,
    "label": LABELS, "dish": DISHES, "topic": TOPICS, "word": RARE_WORDS, "reason": REASONS,
    "currency": CURRENCIES, "payment": PAYMENTS, "colour": COLOURS, "weekday": WEEKDAYS,
    "near_day": NEAR_DAYS,
}
