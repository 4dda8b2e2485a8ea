// Which instruction set to use: the best one that the processor has, or the one that FIELDDEP_INSTRUCTION_SET names.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace fielddep {

namespace baseline {
extern const Kernels kernels;
}
#ifdef FIELDDEP_X86
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
#endif

namespace {

const Kernels& best() {
    const char* asked = std::getenv("FIELDDEP_INSTRUCTION_SET");
    const auto allowed = [asked](const char* name) { return asked == nullptr || std::strcmp(asked, name) == 0; };
#ifdef FIELDDEP_X86
    __builtin_cpu_init();
    if (allowed("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return avx512::kernels;
    if (allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kernels;
#endif
    (void)allowed;
    return baseline::kernels;
}

}  // namespace

const Kernels& choose_kernels() {
    static const Kernels& chosen = best();
    return chosen;
}

}  // namespace fielddep
