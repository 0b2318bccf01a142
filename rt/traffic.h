// Counts the bytes sent by the collectives of a training step, at their calls in generated code.
//
//     comm_calls.h   every collective of every target comes through here, and is counted
//     step.c         says which piece of the step is called, and how often it ran
//     traffic.c      adds up over ranks, and writes --traffic
//
// The unit is that of nnaot's --summary and --comm-manifest, which predict the same numbers: the
// bytes of one rank's larger buffer, input or output.
//
//     all_reduce      n bytes in, n out            n
//     all_gather      n bytes in, ranks * n out    ranks * n
//     reduce_scatter  ranks * n in, n out          ranks * n
//     all_to_all      n bytes in, n out            n
//
// Moves are counted differently: calls are the messages from one rank to another, counted by their
// sender, and bytes are those of the messages.
//
// A GPU calls a piece of a step (step.c) once to record it and then replays it, so a call stands
// for the traffic of every run of its piece.  Calls are counted by piece, and a piece's count is
// added to the total whenever it runs, called or replayed.  The starts of moves are called every
// time.
//
// The runtime's own messages (agreeing on signals, gathering weights to save them) and those of
// evaluation are not part of a step, and not counted.

#ifndef NNRT_TRAFFIC_H
#define NNRT_TRAFFIC_H

#include "job.h"
#include "runtime.h"

enum { TRAFFIC_begin, TRAFFIC_micro, TRAFFIC_update, N_TRAFFIC_PHASES };

typedef struct Tally {
  struct {
    int64_t calls, bytes;
  } at[N_JOB_KINDS][N_TRAFFIC_PHASES];
} Tally;

// Of one rank.
typedef struct Traffic {
  int phase;    // of the current calls
  Tally *piece; // [nnrt_pieces] traffic of one run of each
  Tally *into;  // the tally that calls add to
  Tally total;
  int64_t steps; // number of steps that ran
} Traffic;

void nnrt_traffic_open(NnrtRank *r);
void nnrt_traffic_close(NnrtRank *r);

// Piece r->piece of r->graph is about to be called.
void nnrt_traffic_piece(NnrtRank *r);
void nnrt_traffic_moves(NnrtRank *r);            // the same for starts of moves, or waits for them
void nnrt_traffic_phase(NnrtRank *r, int phase); // phase of the calls from here on
// Counts one collective of a group, on a tensor of this shape with elements of `size` bytes.
void nnrt_traffic_count(NnrtRank *r, int group, JobKind kind, int64_t ndim, const int64_t *dims,
                        int64_t size);
void nnrt_traffic_move(NnrtRank *r, int move, int64_t size); // of this rank's messages
void nnrt_traffic_ran(NnrtRank *r);                          // the piece ran, or will
void nnrt_traffic_step(NnrtRank *r);                         // the step is done

bool nnrt_traffic_write(NnrtRank *r, const char *path, Why *w); // collective

#endif
