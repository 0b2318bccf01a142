// Writes the table of all kernels that ops.def promises for a target, as C: see kernel_table.h.
//
//     kernel_table cpu|cuda

#include <string.h>

#include "ir/op.h"

static void write_entry(const char *row, const char *part, const char *type, int n) {
  printf("    {\"nnrt_%s%s_%.*s\", (void (*)(void))nnrt_%s%s_%.*s},\n", row, part, n, type, row,
         part, n, type);
}

// Writes the kernels for word `word` of a row's column of the target; b stands for four sizes.
static void write_entries(const OpInfo *info, bool batch, const char *word, int n) {
  static const char *const sizes[] = {"b1", "b2", "b4", "b8"};
  bool by_size = n == 1 && *word == 'b';
  for (int i = 0; i < (by_size ? 4 : 1); i++) {
    const char *type = by_size ? sizes[i] : word;
    int length = by_size ? 2 : n;
    write_entry(info->name, batch ? "_batch" : "", type, length);
    if (batch || (info->traits & PREP))
      write_entry(info->name, batch ? "_batch_prep" : "_prep", type, length);
  }
}

// Returns the element types of the kernels: single-tensor or multi-tensor ones.
static const char *types_of(const OpInfo *info, Target target, bool batch) {
  if (!batch) return info->kernels[target];
  return target_info[target].multi_tensor && (info->traits & MULTI_TENSOR) ? info->kernels[target]
                                                                           : "";
}

static void write_table(const char *name, Target target, bool batch) {
  printf("const KernelEntry %s[] = {\n", name);
  for (int kind = 0; kind < N_OPS; kind++) {
    const char *word = types_of(&op_info[kind], target, batch);
    while (*(word += strspn(word, " "))) {
      int n = (int)strcspn(word, " ");
      if (*word != '-') write_entries(&op_info[kind], batch, word, n);
      word += n;
    }
  }
  printf("    {NULL, NULL},\n};\n");
}

int main(int argc, char **argv) {
  Target target;
  if (argc != 2 || !target_parse(argv[1], &target)) {
    fprintf(stderr, "usage: kernel_table cpu|cuda\n");
    return 2;
  }
  printf("#include <stddef.h>\n\n#include \"nnrt.h\"\n\n#include \"kernel_table.h\"\n\n");
  write_table("kernel_table", target, false);
  write_table("batch_kernel_table", target, true);
  printf("const int n_kernels = sizeof kernel_table / sizeof kernel_table[0] - 1;\n");
  return fflush(stdout) != 0;
}
