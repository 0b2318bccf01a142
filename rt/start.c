// main of a generated program, in a file of its own: a program that links the runtime for its
// kernels can define another main.

#include "nnrt.h"

int main(int argc, char **argv) {
  return nnrt_main(argc, argv, &nnrt_program);
}
