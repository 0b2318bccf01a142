// Connections between ranks that are processes: messages in streams.
//
// A queue of jobs has a lane, and a lane has a channel for each phase of its jobs
// (comm_processes.c). On a channel there is a stream to every other rank and one from it: the bytes
// of messages in the order of jobs, without headers.  Both ends put the same jobs in the same
// order, so both know whose bytes are next, however many jobs either of them has begun:
//
//     rank 0, channel 0, to rank 1    job 3 │ job 4 │ job 7            (jobs 5, 6 are without rank 1)
//     rank 1, channel 0, from rank 0  job 3 │ job 4                    (job 7 is not put here yet)
//
// Bytes of a message that this rank does not expect yet stay in the connection.

#ifndef NNRT_WIRE_H
#define NNRT_WIRE_H

#include <stdatomic.h>

#include "peers.h"

// The channels of both lanes: the second lane has jobs of one phase only.
enum { CHANNEL_first, CHANNEL_second, CHANNEL_ahead, N_CHANNELS };

// A message to another rank or from it, or the bytes of it that are left.
typedef struct Message {
  char *at;             // read only of a message to another rank
  int64_t left;         // bytes; 0: it has ended
  int peer;             // the other rank
  bool in;              // from it
  int *pending;         // messages of its phase that have not ended
  struct Message *next; // in its stream
} Message;

typedef struct Stream {
  Message *first, **end;
} Stream;

// The streams between this rank and another on a channel.
typedef struct Pair {
  int channel, peer;
  Stream out, in;
  bool busy; // in the list of its lane
} Pair;

// Used by one thread.
typedef struct Lane {
  int number, ranks;
  int first_channel, n_channels;
  Pair *pair;  // [n_channels, ranks]
  Pair **busy; // those with messages
  int n_busy;
  int n_ended;            // messages, since the last tidy
  double since_us;        // the lane has been busy
  _Atomic int64_t *moved; // counts bytes
} Lane;

void nnrt_lane_open(Lane *l, int number, int ranks, _Atomic int64_t *moved);
void nnrt_lane_close(Lane *l);
// Appends a message to its stream on a channel of the lane; it stays valid until it has ended.
void nnrt_lane_add(Lane *l, int channel, Message *m);
// Removes pairs without messages from the list.
void nnrt_lane_tidy(Lane *l);
// The first `bytes` of the stream were sent or received.
void nnrt_stream_moved(Lane *l, Stream *s, int64_t bytes);

// The activity of a rank, for one that waits for it on a lane.
typedef struct Standing {
  int32_t known;     // its record was read, or it answered
  int32_t waits_for; // rank; -1: none
  int32_t lane;      // on which it waits
  int32_t busy;      // its communicating thread has begun to, or is about to
  int32_t files;     // it reads or writes files
  int64_t moved;     // bytes on this lane
  char last_op[LAST_OP_TEXT];
} Standing;

// Each lane is called by one thread, and lanes are independent of each other; the thread of the
// first lane opens, closes and checks all.
typedef struct Wire {
  const char *name;
  int rank, world, lanes, channels;
  const Peers *peers;
  RankRecord *record; // of this rank
  bool (*open)(struct Wire *w, Why *why);
  // Sends and receives the messages of busy pairs; returns 0 as soon as one of them has ended, the
  // lane is woken, or after some seconds.  The wire sleeps unless `hurry`.
  int (*exchange)(struct Wire *w, Lane *l, atomic_bool *hurry);
  void (*wake)(struct Wire *w, int lane); // by any thread: this exchange, or the next, returns
  void (*close)(struct Wire *w);
  // Returns a code if a rank is gone, and answers questions; called every second while idle.
  int (*check)(struct Wire *w);
  // Asks a rank for its activity, and waits `seconds` for the answer; false: there was none. Called
  // by any thread while that of lane 0 runs.
  bool (*ask)(struct Wire *w, int rank, int lane, double seconds, Standing *out);
  bool relays; // rank 0 passes questions of others on
} Wire;

Wire *nnrt_wire_mpi(const NnrtRun *run);
Wire *nnrt_wire_tcp(const NnrtRun *run);

#endif
