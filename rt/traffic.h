// What the collectives of a training step send, counted where generated code calls them.
//
//     comm_calls.h   every collective of every target comes through here, and is counted
//     step.c         says which piece of the step is called, and how often it ran
//     traffic.c      adds up over ranks, and writes --traffic
//
// The unit is that of nnaot's --summary and --comm-manifest, which predict the same numbers: the
// bytes of one rank's larger buffer, which is what goes in or what comes out.
//
//     all_reduce      n bytes in, n out            n
//     all_gather      n bytes in, ranks * n out    ranks * n
//     reduce_scatter  ranks * n in, n out          ranks * n
//     all_to_all      n bytes in, n out            n
//
// A move is another thing: its calls are the messages from one rank to another, counted by who
// sends them, and its bytes those of the messages.
//
// A gpu calls a piece of a step (step.c) once to record it and then replays it, so a call says what
// every run of its piece sends: calls are counted by piece, and a piece's count is added to the
// total whenever it ran, called or replayed.  The starts of moves are called every time.
//
// What the runtime itself sends (agreeing on signals, gathering weights to save them) and what is
// sent in evaluation are not part of a step, and not counted.

#ifndef NNRT_TRAFFIC_H
#define NNRT_TRAFFIC_H

#include "runtime.h"

// The collectives of nnrt.h that send something.
#define TRAFFIC_KINDS(KIND)                                                                        \
  KIND(all_reduce)                                                                                 \
  KIND(all_gather)                                                                                 \
  KIND(reduce_scatter)                                                                             \
  KIND(all_to_all)                                                                                 \
  KIND(move)

#define KIND(name) TRAFFIC_##name,
typedef enum TrafficKind { TRAFFIC_KINDS(KIND) N_TRAFFIC_KINDS } TrafficKind;
#undef KIND

enum { TRAFFIC_begin, TRAFFIC_micro, TRAFFIC_update, N_TRAFFIC_PHASES };

typedef struct Tally {
  struct {
    int64_t calls, bytes;
  } at[N_TRAFFIC_KINDS][N_TRAFFIC_PHASES];
} Tally;

// Of one rank.
typedef struct Traffic {
  int phase;    // that is called now
  Tally *piece; // [nnrt_pieces] what one run of it sends
  Tally *into;  // what calls add to
  Tally total;
  int64_t steps; // that ran
} Traffic;

void nnrt_traffic_open(NnrtRank *r);
void nnrt_traffic_close(NnrtRank *r);

// Piece r->piece of r->graph is about to be called.
void nnrt_traffic_piece(NnrtRank *r);
void nnrt_traffic_moves(NnrtRank *r);            // starts of moves are, or waits for them
void nnrt_traffic_phase(NnrtRank *r, int phase); // that the calls from here on belong to
// One collective of a group, on a tensor of this shape with elements of `size` bytes.
void nnrt_traffic_count(NnrtRank *r, int group, TrafficKind kind, int64_t rank, const int64_t *dims,
                        int64_t size);
void nnrt_traffic_move(NnrtRank *r, int move, int64_t size); // what this rank sends in it
void nnrt_traffic_ran(NnrtRank *r);                          // the piece ran, or will
void nnrt_traffic_step(NnrtRank *r);                         // the step is done

bool nnrt_traffic_write(NnrtRank *r, const char *path, Why *w); // collective

#endif
