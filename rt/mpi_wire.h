// Ranks over MPI: the parts of the MPI wire (comm_mpi.c).
//
//     mpi_library.c    the library, found at run time, and its two binary interfaces
//     mpi_job.c        MPI_Init within a time limit, and MPI_Abort after an error
//     mpi_missing.c    names the ranks that MPI_Init waits for
//     mpi_questions.c  questions to ranks of other machines, and answers
//     comm_mpi.c       exchanges

#ifndef NNRT_MPI_WIRE_H
#define NNRT_MPI_WIRE_H

#include "comm.h"

// ---- mpi_library.c

typedef struct Mpich { // mpi.h of MPICH: typedef int MPI_Comm, MPI_Datatype, MPI_Request …
  int (*comm_rank)(int comm, int *rank);
  int (*comm_size)(int comm, int *size);
  int (*comm_set_errhandler)(int comm, int handler);
  int (*isend)(const void *, int n, int type, int to, int tag, int comm, int *request);
  int (*irecv)(void *, int n, int type, int from, int tag, int comm, int *request);
  int (*test)(int *request, int *done, void *status);
  int (*iprobe)(int from, int tag, int comm, int *there, void *status);
  int (*abort)(int comm, int status);
} Mpich;

typedef struct OpenMpi { // mpi.h of Open MPI: all of these are pointers
  int (*comm_rank)(void *comm, int *rank);
  int (*comm_size)(void *comm, int *size);
  int (*comm_set_errhandler)(void *comm, void *handler);
  int (*isend)(const void *, int n, void *type, int to, int tag, void *comm, void **request);
  int (*irecv)(void *, int n, void *type, int from, int tag, void *comm, void **request);
  int (*test)(void **request, int *done, void *status);
  int (*iprobe)(int from, int tag, void *comm, int *there, void *status);
  int (*abort)(void *comm, int status);
} OpenMpi;

typedef struct MpiLibrary {
  void *handle;
  pthread_mutex_t calls; // serializes calls of MPI
  bool open_mpi;
  Mpich mpich;
  OpenMpi ompi;
  void *ompi_world, *ompi_byte, *ompi_return;
  int (*init_thread)(int *, char ***, int required, int *provided);
  int (*error_string)(int code, char *text, int *length);
  int (*finalize)(void);
} MpiLibrary;

typedef union Request {
  int mpich;
  void *ompi;
} Request;

enum { MPI_FROM_ANY = -1, MPI_MOST_ERROR = 1024 }; // MPI_MAX_ERROR_STRING is at most this

bool nnrt_mpi_load(MpiLibrary *m, Why *w);
// The functions below return codes of MPI.  Requests stay valid until their test is done, and so
// must the data.
int nnrt_mpi_send(MpiLibrary *m, int tag, int to, const void *data, int n, Request *r);
int nnrt_mpi_receive(MpiLibrary *m, int tag, int from, void *data, int n, Request *r);
int nnrt_mpi_test(MpiLibrary *m, Request *r, int *out_done);
bool nnrt_mpi_is_there(MpiLibrary *m, int tag); // a message, from any rank
// Errors are returned as codes from here on, so that a rank can report its operation.
void nnrt_mpi_place(MpiLibrary *m, int *out_rank, int *out_size);
void nnrt_mpi_abort(MpiLibrary *m, int status); // ends the processes of all machines

// ---- mpi_job.c

// MPI_Init_thread, which waits for all ranks; the process ends if it takes too long.
int nnrt_mpi_init(MpiLibrary *m, const NnrtRun *run, int wanted, int *out_provided);
void nnrt_mpi_end_with(MpiLibrary *m, const NnrtRun *run); // aborts if this process fails
void nnrt_mpi_finalize(MpiLibrary *m);

// ---- mpi_missing.c

void nnrt_mpi_say_missing(const NnrtRun *run);

// ---- mpi_questions.c

// A question to a rank that this one waits for, and the answer to another's.
typedef struct Question {
  int32_t from, lane, number;
} Question;

typedef struct Reply {
  int32_t from, number; // of the question
  Standing standing;
} Reply;

// Guarded by `talking`: a communicating thread sends and receives what other threads ask.
typedef struct Questions {
  pthread_mutex_t one; // question at a time
  pthread_mutex_t talking;
  int asks;                 // the rank to be asked `next`; -1: none
  Question next, question;  // `question` and `reply` are being sent, or were
  Reply reply, came;        // the last reply that came
  Request asking, replying; // of them
  bool is_asking, is_replying;
  double talked_us;
} Questions;

void nnrt_questions_open(Questions *q);
void nnrt_questions_close(Questions *q);
// Asks, answers and hears answers; called now and then by the threads that call MPI.
void nnrt_questions_talk(Questions *q, MpiLibrary *m, const Wire *wire);
// As Wire.ask.
bool nnrt_questions_ask(Questions *q, const Wire *wire, int rank, int lane, double seconds,
                        Standing *out);

#endif
