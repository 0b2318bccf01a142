// Writes, as C, the table of all kernels that ops.def promises for a target: see kernel_table.h.
//
//     kernel_table cpu|cuda

#include <string.h>

#include "ir/op.h"

// The part of a kernel's name for word `word` of its row's column of the target; b stands for four
// sizes.
static void write_entries(const OpInfo *info, const char *word, int n) {
  static const char *const sizes[] = {"b1", "b2", "b4", "b8"};
  bool by_size = n == 1 && *word == 'b';
  for (int i = 0; i < (by_size ? 4 : 1); i++) {
    const char *type = by_size ? sizes[i] : word;
    int length = by_size ? 2 : n;
    printf("    {\"nnrt_%s_%.*s\", (void (*)(void))nnrt_%s_%.*s},\n", info->name, length, type,
           info->name, length, type);
    if (info->traits & PREP)
      printf("    {\"nnrt_%s_prep_%.*s\", (void (*)(void))nnrt_%s_prep_%.*s},\n", info->name,
             length, type, info->name, length, type);
  }
}

int main(int argc, char **argv) {
  Target target;
  if (argc != 2 || !target_parse(argv[1], &target)) {
    fprintf(stderr, "usage: kernel_table cpu|cuda\n");
    return 2;
  }
  printf("#include \"nnrt.h\"\n\n#include \"kernel_table.h\"\n\n");
  printf("const KernelEntry kernel_table[] = {\n");
  for (int kind = 0; kind < N_OPS; kind++) {
    const char *word = op_info[kind].kernels[target];
    while (*(word += strspn(word, " "))) {
      int n = (int)strcspn(word, " ");
      if (*word != '-') write_entries(&op_info[kind], word, n);
      word += n;
    }
  }
  printf("};\nconst int n_kernels = sizeof kernel_table / sizeof kernel_table[0];\n");
  return fflush(stdout) != 0;
}
