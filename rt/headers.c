// The hash of the headers that an archive of the runtime was compiled with.
//
// libnnrt.a and the archives of CUDA kernels are linked into one executable, and the latter are
// made only when they are asked for: an old one would have other layouts of structs.  nnaot
// compares this text of both (backend/target_cuda.c).

#include "nnrt_headers.h" // made by headers_hash.cmake

extern const char nnrt_headers[];
const char nnrt_headers[] = "nnrt headers: " NNRT_HEADERS;
