#include <cstring>

#include "quant/tables.h"

namespace clover::quant {

const Coder &coder(const char *isa) {
    const char *name = kernels(isa).isa;
#ifdef CLOVER_HAVE_AVX512VNNI
    if (!std::strcmp(name, "avx512vnni"))
        return kAvx512Coder;
#endif
#ifdef CLOVER_HAVE_AVX2
    if (!std::strncmp(name, "avx", 3) || !std::strcmp(name, "vnni256"))
        return kAvx2Coder;
#endif
    (void)name;
    return kPortableCoder;
}

} // namespace clover::quant
