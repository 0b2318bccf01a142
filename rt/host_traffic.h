// A note if collectives of a step send more between hosts than they need.
//
// Without --cluster or --per-node nnaot takes all ranks for equally near, so in a collective of r
// ranks on each of several hosts all r receive from other hosts.  If it goes inside hosts first,
// each receives a part, 1/r, and the rest from neighbours.
//
//     all_reduce of n bytes, r ranks on each of h hosts, bytes from other hosts to each rank:
//     at once             2 n (h - 1) / h
//     inside hosts first  2 n (h - 1) / h / r
//
// Ranks of a host are taken to be consecutive, as launchers number them.  Only the cpu target
// counts: NCCL finds the hosts itself.

#ifndef NNRT_HOST_TRAFFIC_H
#define NNRT_HOST_TRAFFIC_H

#include "job.h"
#include "runtime.h"

typedef struct HostTraffic {
  int per_host;      // ranks per host; 0: nothing is counted
  double at_once;    // bytes that this rank receives from other hosts in a step
  double host_first; // of these, as many as it would receive
} HostTraffic;

void nnrt_host_traffic_open(NnrtRank *r);
// Counts a collective of a training step; `bytes` is its larger buffer.
void nnrt_host_traffic_count(NnrtRank *r, int group, JobKind kind, int64_t bytes);
void nnrt_host_traffic_step(NnrtRank *r); // after the first step prints the note, if any

#endif
