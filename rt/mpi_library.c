// The MPI library, found at run time: the same executable runs on machines without MPI.
//
// There are two binary interfaces.  In MPICH's (and Intel's, and Cray's) handles are ints with
// known values; in Open MPI's they are pointers to known symbols, which tells the two apart.

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_wire.h"

enum { MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d, MPICH_RETURN = 0x54000001 };
enum { MPICH_ANY = -2, OMPI_ANY = -1 }; // MPI_ANY_SOURCE

static bool load_symbol(MpiLibrary *m, const char *name, void *out, Why *w) {
  void *symbol = dlsym(m->handle, name);
  if (!symbol) return why(w, "the MPI library has no '%s'", name);
  memcpy(out, &symbol, sizeof symbol); // C has no cast from an object's pointer to a function's
  return true;
}

bool nnrt_mpi_load(MpiLibrary *m, Why *w) {
  // If several are installed, take the launcher's: each works only with its own processes.
  bool hydra = getenv("PMI_RANK") != NULL;
  const char *names[] = {getenv("NNRT_MPI_LIBRARY"), hydra ? "libmpich.so.12" : "libmpi.so.40",
                         hydra ? "libmpi.so.12" : "libmpi.so", hydra ? "libmpich.so" : NULL,
                         hydra ? "libmpi.so" : NULL};
  for (size_t i = 0; i < sizeof names / sizeof *names && !m->handle; i++)
    if (names[i]) m->handle = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
  if (!m->handle)
    return why(w,
               "an MPI launcher started this process, but no MPI library is found: %s\n"
               "hint: set LD_LIBRARY_PATH, or NNRT_MPI_LIBRARY to the library's file",
               dlerror());
  // Only Open MPI has this symbol.
  m->open_mpi = dlsym(m->handle, "ompi_mpi_comm_world") != NULL;
  bool ok = load_symbol(m, "MPI_Init_thread", &m->init_thread, w) &&
            load_symbol(m, "MPI_Error_string", &m->error_string, w) &&
            load_symbol(m, "MPI_Finalize", &m->finalize, w);
  // The same functions, with handles of another type.
  if (m->open_mpi)
    return ok && load_symbol(m, "MPI_Comm_rank", &m->ompi.comm_rank, w) &&
           load_symbol(m, "MPI_Comm_size", &m->ompi.comm_size, w) &&
           load_symbol(m, "MPI_Comm_set_errhandler", &m->ompi.comm_set_errhandler, w) &&
           load_symbol(m, "MPI_Isend", &m->ompi.isend, w) &&
           load_symbol(m, "MPI_Irecv", &m->ompi.irecv, w) &&
           load_symbol(m, "MPI_Test", &m->ompi.test, w) &&
           load_symbol(m, "MPI_Iprobe", &m->ompi.iprobe, w) &&
           load_symbol(m, "MPI_Abort", &m->ompi.abort, w) &&
           load_symbol(m, "ompi_mpi_comm_world", &m->ompi_world, w) &&
           load_symbol(m, "ompi_mpi_byte", &m->ompi_byte, w) &&
           load_symbol(m, "ompi_mpi_errors_return", &m->ompi_return, w);
  return ok && load_symbol(m, "MPI_Comm_rank", &m->mpich.comm_rank, w) &&
         load_symbol(m, "MPI_Comm_size", &m->mpich.comm_size, w) &&
         load_symbol(m, "MPI_Comm_set_errhandler", &m->mpich.comm_set_errhandler, w) &&
         load_symbol(m, "MPI_Isend", &m->mpich.isend, w) &&
         load_symbol(m, "MPI_Irecv", &m->mpich.irecv, w) &&
         load_symbol(m, "MPI_Test", &m->mpich.test, w) &&
         load_symbol(m, "MPI_Iprobe", &m->mpich.iprobe, w) &&
         load_symbol(m, "MPI_Abort", &m->mpich.abort, w);
}

int nnrt_mpi_send(MpiLibrary *m, int tag, int to, const void *data, int n, Request *r) {
  pthread_mutex_lock(&m->calls);
  // MPI is called by one thread at a time.
  int code = m->open_mpi ? m->ompi.isend(data, n, m->ompi_byte, to, tag, m->ompi_world, &r->ompi)
                         : m->mpich.isend(data, n, MPICH_BYTE, to, tag, MPICH_WORLD, &r->mpich);
  pthread_mutex_unlock(&m->calls);
  return code;
}

int nnrt_mpi_receive(MpiLibrary *m, int tag, int from, void *data, int n, Request *r) {
  if (from == MPI_FROM_ANY) from = m->open_mpi ? OMPI_ANY : MPICH_ANY;
  pthread_mutex_lock(&m->calls);
  int code = m->open_mpi ? m->ompi.irecv(data, n, m->ompi_byte, from, tag, m->ompi_world, &r->ompi)
                         : m->mpich.irecv(data, n, MPICH_BYTE, from, tag, MPICH_WORLD, &r->mpich);
  pthread_mutex_unlock(&m->calls);
  return code;
}

int nnrt_mpi_test(MpiLibrary *m, Request *r, int *out_done) {
  void *ignore = m->open_mpi ? NULL : (void *)1; // MPI_STATUS_IGNORE
  pthread_mutex_lock(&m->calls);
  // A test is short, so the other lane is not held up.
  int code = m->open_mpi ? m->ompi.test(&r->ompi, out_done, ignore)
                         : m->mpich.test(&r->mpich, out_done, ignore);
  pthread_mutex_unlock(&m->calls);
  return code;
}

bool nnrt_mpi_is_there(MpiLibrary *m, int tag) {
  int there = 0;
  void *ignore = m->open_mpi ? NULL : (void *)1;
  pthread_mutex_lock(&m->calls);
  int code = m->open_mpi ? m->ompi.iprobe(OMPI_ANY, tag, m->ompi_world, &there, ignore)
                         : m->mpich.iprobe(MPICH_ANY, tag, MPICH_WORLD, &there, ignore);
  pthread_mutex_unlock(&m->calls);
  return !code && there;
}

void nnrt_mpi_place(MpiLibrary *m, int *out_rank, int *out_size) {
  if (m->open_mpi) {
    m->ompi.comm_set_errhandler(m->ompi_world, m->ompi_return);
    m->ompi.comm_rank(m->ompi_world, out_rank);
    m->ompi.comm_size(m->ompi_world, out_size);
  } else {
    m->mpich.comm_set_errhandler(MPICH_WORLD, MPICH_RETURN);
    m->mpich.comm_rank(MPICH_WORLD, out_rank);
    m->mpich.comm_size(MPICH_WORLD, out_size);
  }
}

void nnrt_mpi_abort(MpiLibrary *m, int status) {
  if (m->open_mpi)
    m->ompi.abort(m->ompi_world, status);
  else
    m->mpich.abort(MPICH_WORLD, status);
}
