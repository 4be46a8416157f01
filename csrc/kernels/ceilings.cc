#include "kernels/ceilings.h"

#include <string>

namespace clover {

Ceilings ceilings(const char *isa) {
    const std::string name = isa;
    Ceilings found{isa, nullptr, nullptr, nullptr};
#ifdef CLOVER_HAVE_AVX2
    if (name == "avx2" || name == "avxvnni" || name == "vnni256")
        found = kAvx2Ceilings;
#endif
#ifdef CLOVER_HAVE_AVXVNNI
    if (name == kAvxVnniCeilings.isa)
        found.dot = kAvxVnniCeilings.dot;
#endif
#ifdef CLOVER_HAVE_VNNI256
    if (name == kVnni256Ceilings.isa)
        found.dot = kVnni256Ceilings.dot;
#endif
#ifdef CLOVER_HAVE_AVX512VNNI
    if (name == kAvx512VnniCeilings.isa)
        found = kAvx512VnniCeilings;
#endif
#ifdef CLOVER_HAVE_NEON_DOTPROD
    if (name == kNeonDotprodCeilings.isa)
        found = kNeonDotprodCeilings;
#endif
#ifdef CLOVER_HAVE_NEON_I8MM
    if (name == kNeonI8mmCeilings.isa)
        found = kNeonI8mmCeilings;
#endif
    return found;
}

} // namespace clover
