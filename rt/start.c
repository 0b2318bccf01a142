// main of a generated program.  It is a file of its own so that what links the runtime for its
// kernels can have another.

#include "nnrt.h"

int main(int argc, char **argv) {
  return nnrt_main(argc, argv, &nnrt_program);
}
