// Plain left-to-right decoding with the commit pass alone: every token is a block of one; under a constraint with the
// tokens that it forces behind it.
#include "decode/decoder.h"

namespace clover {

Pick Decoder::next_token() {
    const Pick next = pick_rows(state_.hidden.data(), {0}, {state_.position}, 0)[0];
    note(state_.hidden.data(), {0}, {place(0)}, {next.id});
    return next;
}

void Decoder::decode_tokens() {
    while (!done()) {
        tick_();
        std::vector<int> tokens = constraint_ ? next_run() : std::vector<int>{next_token().id};
        for (int id : tokens)
            seen_[id]++;
        Event event(Event::Type::step);
        event.block = int(result_.counters.blocks);
        event.ids = event.draft = tokens;
        event.accepted.assign(tokens.size(), 1);
        notify(event);
        if (done())
            return;
        if (o_.logprobs < 0 || tokens.size() == 1) {
            close_block(tokens);
            continue;
        }
        commit(tokens); // whose rows decide the forced tokens
        note_verified(tokens, tokens.size() - 1, {tokens.back(), 1});
        add_text(tokens);
    }
}

} // namespace clover
