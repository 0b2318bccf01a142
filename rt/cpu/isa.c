// The instruction sets that kernels use: of oneDNN, and of functions marked NNRT_CLONES.
//
//     processors     AVX2, FMA         AVX-512, bf16
//     common         avx2              avx2
//
// Sums of different vector widths are added in different orders, so ranks of different processors
// compute different bits of the weights that they hold in common.  They agree on the sets that all
// have (kernel_agreement.c), before the first kernel is prepared.
//
// The library is told by its function, and its own variable of one rank becomes a limit of all
// (dnnl_isa.c).  The dynamic linker has chosen a version of each NNRT_CLONES
// function before main: the compiler writes a resolver, which reads the features of the processor
// from libgcc's variables, and the linker stores its result in the table of addresses.  To lower
// the choice, the features are cleared, and all resolvers are called again.  The table is protected
// memory, and is opened for that moment.

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fpmath.h"
#include "isa.h"

static const struct {
  const char *name; // in NNRT_MAX_ISA
  int set;
} levels[] = {
#if defined(__aarch64__)
    {"neon", ISA_NEON},
#else
    {"sse4.2", ISA_SSE41}, // no kernel uses more of it than the next
    {"sse41", ISA_SSE41},
    {"avx", ISA_AVX},
    {"avx2", ISA_AVX2 | ISA_CLONES_V3},
    {"avx2_vnni", ISA_AVX2_VNNI | ISA_CLONES_V3},
    {"avx2_vnni_2", ISA_AVX2_VNNI_2 | ISA_CLONES_V3},
    {"avx512", ISA_AVX512 | ISA_CLONES},
    {"avx512_vnni", ISA_AVX512_VNNI | ISA_CLONES},
    {"avx512_bf16", ISA_AVX512_BF16 | ISA_CLONES},
    {"avx512_fp16", ISA_AVX512_FP16 | ISA_CLONES},
    {"amx", ISA_AMX | ISA_CLONES},
    {"amx_fp16", ISA_AMX_FP16 | ISA_CLONES},
#endif
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

const char *nnrt_device_isa_name(int64_t set) {
  const char *name = "no vector instructions";
  // The levels are in order: the last one that the set contains.
  for (int i = 0; i < N_LEVELS; i++)
    if ((levels[i].set & ~set) == 0) name = levels[i].name;
  return name;
}

Bf16Products isa_bf16_products(int64_t set) {
  if ((ISA_AMX & ~set) == 0) return BF16_tiles;
  return (ISA_AVX512_BF16 & ~set) == 0 ? BF16_vectors : BF16_none;
}

char *nnrt_device_isa_note(int64_t set, const Flags *f) {
  Bf16Products has = isa_bf16_products(set);
  if (f->fpmath.i == FPMATH_f32 || has == BF16_tiles) return NULL;
  if (f->fpmath.i == FPMATH_bf16 && has == BF16_vectors) return NULL;
  return nnrt_must_format("--fpmath %s saves no time: the instruction set '%s' has no products of "
                          "%sbf16",
                          f->fpmath.s, nnrt_device_isa_name(set),
                          has == BF16_vectors ? "tiles of " : "");
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <cpuid.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// Whether the kernel lets a process use AMX's tiles.
static bool has_tiles(void) {
  enum { ARCH_GET_XCOMP_SUPP = 0x1021, TILE_DATA = 18 };
  uint64_t supported = 0;
  return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 &&
         (supported >> TILE_DATA & 1);
}

static int of_processor(void) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __builtin_cpu_init();
  // Newer than the names that the compiler knows: leaf 7.1.
  if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) eax = edx = 0;
  bool int8 = edx >> 4 & 1, convert = edx >> 5 & 1, tiles_fp16 = eax >> 21 & 1;
  bool avx2 = __builtin_cpu_supports("avx2"), v4 = __builtin_cpu_supports("x86-64-v4");
  bool vnni = v4 && __builtin_cpu_supports("avx512vnni");
  bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  bool avx_vnni = avx2 && __builtin_cpu_supports("avxvnni");
  bool fp16 = bf16 && avx_vnni && __builtin_cpu_supports("avx512fp16");
  bool tiles = fp16 && __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16") &&
               has_tiles();
  int set = 0;
  if (__builtin_cpu_supports("sse4.1")) set |= ISA_SSE41;
  if (__builtin_cpu_supports("avx")) set |= ISA_AVX;
  if (avx2) set |= ISA_AVX2;
  if (avx_vnni) set |= ISA_AVX2_VNNI;
  if (avx_vnni && int8 && convert) set |= ISA_AVX2_VNNI_2;
  if (v4) set |= ISA_AVX512;
  if (vnni) set |= ISA_AVX512_VNNI;
  if (bf16) set |= ISA_AVX512_BF16;
  if (fp16) set |= ISA_AVX512_FP16;
  if (tiles) set |= ISA_AMX;
  if (tiles && tiles_fp16) set |= ISA_AMX_FP16;
  if (__builtin_cpu_supports("x86-64-v3")) set |= ISA_CLONES_V3;
  return set | (v4 ? ISA_CLONES_V4 : 0);
}

// libgcc's features of the processor from number 32 on, 32 in a word.  Their numbers are part of
// the interface between compiler and library, and do not change.
extern unsigned __cpu_features2[] __attribute__((visibility("hidden")));
enum { FEATURE_V3 = 97, FEATURE_V4 = 98 };

static void clear_feature(int number) {
  __cpu_features2[number / 32 - 1] &= ~(1u << number % 32);
}

// The program's relocations of one kind.
static void resolve_again(ElfW(Addr) base, int table, int size) {
  ElfW(Addr) at = 0;
  size_t bytes = 0;
  for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
    if (d->d_tag == table) at = d->d_un.d_ptr;
    if (d->d_tag == size) bytes = d->d_un.d_val;
  }
  // Some versions of the dynamic linker have added the base already.
  if (at < base) at += base;
  const ElfW(Rela) *rela = (const void *)at;
  for (size_t i = 0; i < bytes / sizeof *rela; i++) {
    if (ELF64_R_TYPE(rela[i].r_info) != R_X86_64_IRELATIVE) continue;
    ElfW(Addr) (*resolver)(void) = (ElfW(Addr)(*)(void))(base + (ElfW(Addr))rela[i].r_addend);
    *(ElfW(Addr) *)(base + rela[i].r_offset) = resolver();
  }
}

// Of the program itself, which is the first object.
static int find_program(struct dl_phdr_info *info, size_t size, void *out) {
  (void)size;
  *(struct dl_phdr_info *)out = *info;
  return 1;
}

static bool lower_clones(int set, Why *w) {
  if (!(set & ISA_CLONES_V4)) clear_feature(FEATURE_V4);
  if (!(set & ISA_CLONES_V3)) clear_feature(FEATURE_V3);
  __asm__ volatile("" ::: "memory"); // the built-in functions read the variables again
  if ((!(set & ISA_CLONES_V4) && __builtin_cpu_supports("x86-64-v4")) ||
      (!(set & ISA_CLONES_V3) && __builtin_cpu_supports("x86-64-v3")))
    return why(w, "the program's kernels cannot use fewer instructions than the processor has");
  struct dl_phdr_info program = {0};
  dl_iterate_phdr(find_program, &program);
  ElfW(Addr) base = program.dlpi_addr, page = (ElfW(Addr))sysconf(_SC_PAGESIZE);
  // The table of addresses is in the part that is read-only after relocation.
  char *from = NULL;
  size_t bytes = 0;
  for (int i = 0; i < program.dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &program.dlpi_phdr[i];
    if (h->p_type != PT_GNU_RELRO) continue;
    ElfW(Addr) first = (base + h->p_vaddr) / page * page;
    from = (char *)first;
    bytes = (base + h->p_vaddr + h->p_memsz) / page * page - first;
  }
  if (bytes && mprotect(from, bytes, PROT_READ | PROT_WRITE) != 0)
    return why(w, "the program's table of addresses cannot be changed: %s", strerror(errno));
  resolve_again(base, DT_RELA, DT_RELASZ);
  resolve_again(base, DT_JMPREL, DT_PLTRELSZ);
  if (bytes) mprotect(from, bytes, PROT_READ);
  return true;
}

#else

static int of_processor(void) {
#if defined(__aarch64__)
  return ISA_NEON;
#else
  return 0;
#endif
}

static bool lower_clones(int set, Why *w) {
  (void)set;
  return why(w, "the kernels of this processor have one set of instructions");
}

#endif

// Of all ranks of this process, which agree on it; -1: not said yet.
static atomic_llong in_use = -1;

static int available(void) {
  return of_processor() & (~ISA_OF_LIBRARY | library_isa_allowed());
}

int64_t isa_in_use(void) {
  int64_t set = atomic_load_explicit(&in_use, memory_order_relaxed);
  return set < 0 ? available() : set;
}

bool nnrt_device_isa(int64_t *out_set, Why *w) {
  const char *most = getenv("NNRT_MAX_ISA");
  int set = available(), found = -1;
  *out_set = set;
  if (!most || !*most) return true;
  for (int i = 0; i < N_LEVELS && found < 0; i++)
    if (strcmp(most, levels[i].name) == 0) found = levels[i].set;
  *out_set = set & found;
  if (found >= 0) return true;
  char *names = NULL;
  for (int i = 0; i < N_LEVELS; i++)
    names = nnrt_must_append(names, "%s%s", i ? ", " : "", levels[i].name);
  why(w, "NNRT_MAX_ISA is '%s', and no instruction set has this name\nhint: %s", most, names);
  free(names);
  return false;
}

bool nnrt_device_use_isa(int64_t set, Why *w) {
  atomic_store_explicit(&in_use, set, memory_order_relaxed);
  int mine = of_processor(), library = (int)set & ISA_OF_LIBRARY;
  if (library != (mine & library_isa_allowed()) && !library_isa_use(library))
    return why(w, "%s cannot use the instruction set '%s'", library_name(),
               nnrt_device_isa_name(set));
  return (set & ISA_CLONES) == (mine & ISA_CLONES) || lower_clones((int)set, w);
}
