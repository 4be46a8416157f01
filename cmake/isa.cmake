# Everything under csrc/kernels: portable sources, and one object library per instruction set with
# flags of its own, so that no other code is compiled for a processor that may not be there.
#
#   clover_add_kernels(target)
#
# adds all sources of csrc/kernels to `target` (list none of them elsewhere). An instruction set that
# the compiler or the architecture lacks is skipped with a message; the others are announced to
# dispatch.cc as CLOVER_HAVE_<NAME>.
include(CheckCXXSourceCompiles)

# Contracting a*b+c differently in two instances of a template would break the bitwise row rule.
set(CLOVER_KERNEL_FLAGS -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # these passes stretch lifetimes until sums of products spill
    list(APPEND CLOVER_KERNEL_FLAGS -fno-gcse -fno-tree-pre -fno-tree-reassoc -fno-tree-ter)
endif()
# The same bytes everywhere; and errno would keep square roots out of vectors.
set(CLOVER_QUANT_FLAGS -ffp-contract=off -fno-math-errno)
# GCC 12 warns about the deliberately undefined operands inside its own AVX-512 header.
set(CLOVER_ISA_FLAGS ${CLOVER_KERNEL_FLAGS} -Wno-maybe-uninitialized)

function(clover_add_isa target isa)
    cmake_parse_arguments(ARG "" "HEADER" "FLAGS;SOURCES" ${ARGN})
    string(TOUPPER ${isa} upper)
    string(REPLACE ";" " " CMAKE_REQUIRED_FLAGS "${ARG_FLAGS}")
    check_cxx_source_compiles("#include <${ARG_HEADER}>
int main() { return 0; }" CLOVER_COMPILER_HAS_${upper})
    if(NOT CLOVER_COMPILER_HAS_${upper})
        message(STATUS "clover-edge: kernels for ${isa} skipped, the compiler lacks ${ARG_FLAGS}")
        return()
    endif()
    set(library clover_kernels_${isa})
    add_library(${library} OBJECT ${ARG_SOURCES})
    target_compile_features(${library} PRIVATE cxx_std_17)
    target_compile_options(${library} PRIVATE ${ARG_FLAGS} ${CLOVER_ISA_FLAGS})
    target_include_directories(${library} PRIVATE ${PROJECT_SOURCE_DIR}/csrc)
    set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF
                                                CXX_VISIBILITY_PRESET hidden)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
    target_compile_definitions(${target} PRIVATE CLOVER_HAVE_${upper}=1)
endfunction()

function(clover_add_x86 target dir)
    clover_add_isa(${target} avx2
                   HEADER immintrin.h FLAGS -mavx2 -mfma -mf16c
                   SOURCES ${dir}/avx2.cc ${dir}/avx2_mixers.cc ${dir}/ceilings_avx2.cc ${dir}/../quant/avx2.cc)
    clover_add_isa(${target} avxvnni
                   HEADER immintrin.h FLAGS -mavx2 -mfma -mf16c -mavxvnni
                   SOURCES ${dir}/avxvnni.cc ${dir}/ceilings_avxvnni.cc)
    clover_add_isa(${target} vnni256
                   HEADER immintrin.h FLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512vl -mavx512vnni -DCLOVER_VNNI_EVEX
                   SOURCES ${dir}/avxvnni.cc ${dir}/ceilings_avxvnni.cc)
    clover_add_isa(${target} avx512vnni
                   HEADER immintrin.h FLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
                   SOURCES ${dir}/avx512vnni.cc ${dir}/avx512vnni_mixers.cc ${dir}/ceilings_avx512vnni.cc
                           ${dir}/../quant/avx512.cc)
endfunction()

function(clover_add_aarch64 target dir)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # another pass that stretches lifetimes; off by default on x86
        list(APPEND CLOVER_ISA_FLAGS -fno-schedule-insns)
    endif()
    clover_add_isa(${target} neon_dotprod
                   HEADER arm_neon.h FLAGS -march=armv8.2-a+dotprod
                   SOURCES ${dir}/neon_dotprod.cc ${dir}/neon_mixers.cc ${dir}/ceilings_neon.cc)
    clover_add_isa(${target} neon_i8mm
                   HEADER arm_neon.h FLAGS -march=armv8.2-a+dotprod+i8mm
                   SOURCES ${dir}/neon_i8mm.cc ${dir}/ceilings_neon.cc)
endfunction()

function(clover_add_kernels target)
    set(dir ${PROJECT_SOURCE_DIR}/csrc/kernels)
    set(portable ${dir}/reference.cc ${dir}/reference_mixers.cc ${dir}/kv.cc ${dir}/dispatch.cc ${dir}/ceilings.cc)
    target_sources(${target} PRIVATE ${portable})
    set_source_files_properties(${portable} PROPERTIES COMPILE_OPTIONS "${CLOVER_KERNEL_FLAGS}")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
        clover_add_x86(${target} ${dir})
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
        clover_add_aarch64(${target} ${dir})
    else()
        message(STATUS "clover-edge: no vector kernels for ${CMAKE_SYSTEM_PROCESSOR} yet, using reference")
    endif()
endfunction()
