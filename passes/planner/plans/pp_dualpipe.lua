-- Two ways as in pp_chimera, and gradients of weights apart, as zero bubble has them: the shape of DualPipe
-- (DeepSeek-V3).

function model()
  apply("pp_chimera")
end

function step(axis)
  place(axis, { ways = 2 })
  schedule("dualpipe")
end
