// Copies between a device and host memory: their seconds without others in their queue.

#ifndef COST_HOST_COPIES_H
#define COST_HOST_COPIES_H

#include "cluster/cluster.h"
#include "ir/op.h"

// The most devices of the list that are in one node, and share its links to host memory.
int host_sharing(const Cluster *c, const int *device, int n);
// Bytes/s of a device, of so many in its node.
double host_speed(const Cluster *c, const Device *d, int in_node);
// The seconds of a copy to or from host memory (swap_out, swap_in …). If the host updates the
// offloaded states itself, those of its update, and of the gradient and the new value.
double host_copy_seconds(const Cluster *c, const Device *d, int in_node, const Op *op);

#endif
