// Plain left-to-right decoding with the commit pass alone: every token is a block of one.
#include "decode/decoder.h"

namespace clover {

Pick Decoder::next_token() { return pick_rows(state_.hidden.data(), {0}, {state_.position}, 0)[0]; }

void Decoder::decode_tokens() {
    while (!done()) {
        tick_();
        const Pick next = next_token();
        seen_[next.id]++;
        Event event(Event::Type::step);
        event.block = int(result_.counters.blocks);
        event.ids = event.draft = {next.id};
        event.accepted = {1};
        notify(event);
        if (!done())
            close_block({next.id});
    }
}

} // namespace clover
