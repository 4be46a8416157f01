// The vector tables' operations that mix rows, each compiled in a file of its own.
#pragma once

#include "kernels/kernels.h"

namespace clover {

namespace avx2 {
void delta_commit(const DeltaHead &);
void delta_closed(const DeltaHead &);
void delta_preview(const PreviewHead &);
void attention(const AttentionHeads &);
} // namespace avx2

namespace avx512vnni {
void delta_commit(const DeltaHead &);
void delta_closed(const DeltaHead &);
void delta_preview(const PreviewHead &);
void attention(const AttentionHeads &);
} // namespace avx512vnni

namespace neon {
void delta_commit(const DeltaHead &);
void delta_closed(const DeltaHead &);
void delta_preview(const PreviewHead &);
void attention(const AttentionHeads &);
} // namespace neon

} // namespace clover
