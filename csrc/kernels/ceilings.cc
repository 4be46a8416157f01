#include "kernels/ceilings.h"

#include <string>

namespace clover {

const Ceilings *ceilings(const char *isa) {
    const std::string name = isa;
#ifdef CLOVER_HAVE_AVX512VNNI
    if (name == kAvx512VnniCeilings.isa)
        return &kAvx512VnniCeilings;
#endif
#ifdef CLOVER_HAVE_AVX2
    if (name == kAvx2Ceilings.isa)
        return &kAvx2Ceilings;
#endif
    return nullptr;
}

} // namespace clover
