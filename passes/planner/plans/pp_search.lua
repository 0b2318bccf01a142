-- Stages as pp has them, and the shortest order that is found for what they take, in the memory of 1F1B.

function step(axis)
  apply("pp", axis)
  schedule("search")
end
