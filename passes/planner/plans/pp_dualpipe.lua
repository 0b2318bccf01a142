-- Both directions as in pp_chimera, and separate weight gradients as in zero bubble: the shape of
-- DualPipe (DeepSeek-V3).

function model()
  apply("pp_chimera")
end

function step(axis)
  place(axis, { ways = 2 })
  schedule("dualpipe")
end
