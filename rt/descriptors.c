// Opens closed standard descriptors (descriptors.h) before the first constructor of any library.

#include "descriptors.h"

#include <string.h>

#include "runtime.h"

static bool opened;

static void open_first(void) {
  opened = nnrt_descriptors_open();
}

// The dynamic linker calls these before the constructors of libraries, which may open files.
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = open_first;

bool nnrt_descriptors_check(Why *w) {
  return opened || nnrt_descriptors_open() ||
         why(w, "standard input, output or error is closed, and /dev/null cannot be opened: %s",
             strerror(errno));
}
