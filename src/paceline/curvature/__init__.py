"""The shape of the loss around a point: Hessian-vector products, eigenvalues, trace and spectral density."""
