// The placement of a tensor on devices, in the notation of SuperScaler (§3.3):
//
//     R(2)V(1)D(1,4)@0-7       two copies, each sharded in four along the second dimension
//     R(1)V(2)D(1,2)@0,2,4,6   every half is the sum of two devices' shares
//
// The list of devices is row-major over R, V, and the dimensions, in this order: the last varies
// fastest.  In the first line device 0 has columns 0-1/4 of the first copy, device 1 columns
// 1/4-1/2, device 4 the first quarter of the second copy.

#ifndef PLACEMENT_H
#define PLACEMENT_H

#include <stdint.h>

#include "cluster/cluster.h"

enum { PLACEMENT_DIMS = 8 };

typedef struct TensorShape {
  int ndim; // 1 to PLACEMENT_DIMS
  int64_t dim[PLACEMENT_DIMS];
  int bytes; // per element
} TensorShape;

typedef struct Placement {
  int copies, shares, part[PLACEMENT_DIMS]; // R, V, D
  int n;                                    // their product: the number of devices
  const int *device;
} Placement;

// Parses "1024x1024".  False after an error; messages name `option`, such as "--shape".
bool shape_read(const char *text, const char *option, TensorShape *out, Diag *d);
bool shape_equal(const TensorShape *a, const TensorShape *b);

// Parses a placement. Also checks that it divides the shape, and that the cluster has the devices.
bool placement_read(Arena *a, const char *text, const char *option, const TensorShape *shape,
                    const Cluster *c, Placement *out, Diag *d);

// "0-3,8": devices in this order.
const char *devices_text(Arena *a, const int *device, int n);

#endif
