// The tables themselves, one per instruction set; only dispatch.cc chooses among them.
#pragma once

#include "kernels/kernels.h"

namespace clover {

extern const Kernels kReferenceKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kVnni256Kernels;
extern const Kernels kAvx512VnniKernels;
extern const Kernels kNeonDotprodKernels;
extern const Kernels kNeonI8mmKernels;

} // namespace clover
