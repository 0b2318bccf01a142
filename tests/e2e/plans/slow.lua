-- Ranks that compute so slowly that communication pays.
return { per_node=4, inside={alpha=1e-6,beta=1/1e10}, f32=1e11, memory_speed=2e10, launch=1e-6, memory=1e9 }
