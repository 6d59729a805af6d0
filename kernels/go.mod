module github.com/minisgl/minisgl/kernels

go 1.26
