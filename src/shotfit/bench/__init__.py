"""Many runs: grids, the paper's tables and studies, on this machine or on Ray."""
