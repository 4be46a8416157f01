// What one preview of a canvas leaves for the next: of every row its entropy, and its mean embedding.
#pragma once

#include <vector>

#include "model/head.h"

namespace clover {

// Under the probabilities that the pass over the head stands for (its rule's temperature and penalties included):
// returns the entropy [rows] in nats; and, unless it is null, soft [rows, H] <- embed_scale * the mean embedding.
// Streams over the head's stripes again, those that a row gives any weight to: there is no array of logits. Ids so
// improbable that all of them together change no float32 sum count nothing. Uses scratch.y.
std::vector<double> soften(Model &, HeadPass &, float *soft);

} // namespace clover
