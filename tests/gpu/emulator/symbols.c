// The symbol table of the program's own file.
//
// Kernels are static functions, which dladdr does not find, and __shared__ variables are
// thread-local variables inside functions: both are only in the file's symbol table, so it is read
// once.  In a stripped program, kernels have no names and shared memory is not filled.

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

// Of the C++ library, which every program with kernels has.
extern char *__cxa_demangle(const char *mangled, char *out, size_t *bytes, int *status)
    __attribute__((weak));

typedef struct Function {
  uintptr_t at;
  size_t bytes;
  const char *mangled;
  char *name; // demangled on demand
} Function;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t name_lock = PTHREAD_MUTEX_INITIALIZER;
static Function *functions;
static int n_functions;
static SharedVariable *variables;
static int n_variables;
static uintptr_t base; // load address of the program

static int find_program(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  *(struct dl_phdr_info *)found = *info; // the program itself is the first
  return 1;
}

static int by_address(const void *a, const void *b) {
  const Function *x = a, *y = b;
  return x->at < y->at ? -1 : x->at > y->at;
}

// A __shared__ variable `s` of a function f is mangled _ZZ 1f E 1s, or with L before an internal
// name.
static void take(const Elf64_Sym *symbol, const char *name) {
  int type = ELF64_ST_TYPE(symbol->st_info);
  if (type == STT_FUNC && symbol->st_size) {
    functions[n_functions++] = (Function){base + symbol->st_value, symbol->st_size, name, NULL};
  } else if (type == STT_TLS && !strncmp(name, "_ZZ", 3)) {
    variables[n_variables++] = (SharedVariable){symbol->st_value, symbol->st_size};
  }
}

static void read_symbols(void) {
  struct dl_phdr_info program;
  dl_iterate_phdr(find_program, &program);
  base = program.dlpi_addr;
  int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat s;
  if (fd < 0 || fstat(fd, &s)) return;
  // Never unmapped: names point into it.
  char *file = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (file == MAP_FAILED) return;
  const Elf64_Ehdr *head = (const void *)file;
  const Elf64_Shdr *section = (const void *)(file + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++) {
    if (section[i].sh_type != SHT_SYMTAB) continue;
    const Elf64_Sym *symbol = (const void *)(file + section[i].sh_offset);
    size_t n = section[i].sh_size / sizeof *symbol;
    const char *names = file + section[section[i].sh_link].sh_offset;
    functions = malloc(n * sizeof *functions);
    variables = malloc(n * sizeof *variables);
    if (!functions || !variables) emulated_abort("no memory");
    for (size_t j = 0; j < n; j++)
      take(&symbol[j], names + symbol[j].st_name);
    break;
  }
  qsort(functions, (size_t)n_functions, sizeof *functions, by_address);
}

const char *emulated_name(const void *function) {
  pthread_once(&once, read_symbols);
  uintptr_t at = (uintptr_t)function;
  int low = 0, high = n_functions;
  while (low < high) {
    int middle = (low + high) / 2;
    if (functions[middle].at <= at)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0 || at >= functions[low - 1].at + functions[low - 1].bytes) return "a kernel";
  Function *f = &functions[low - 1];
  pthread_mutex_lock(&name_lock);
  if (!f->name && __cxa_demangle) {
    int status;
    f->name = __cxa_demangle(f->mangled, NULL, NULL, &status);
  }
  pthread_mutex_unlock(&name_lock);
  return f->name ? f->name : f->mangled;
}

int emulated_shared_variables(const SharedVariable **out) {
  pthread_once(&once, read_symbols);
  *out = variables;
  return n_variables;
}

static int find_memory(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  *(char **)found = info->dlpi_tls_data;
  return 1;
}

char *emulated_thread_local(void) {
  static __thread char *at;
  if (!at) dl_iterate_phdr(find_memory, &at);
  return at;
}
