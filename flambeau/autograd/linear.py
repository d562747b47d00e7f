"""Operations whose tangents are the operation itself on tangents, by name.

A table by name, since no formula says of these that they are linear. What is in no table is differentiated by what it puts on the tape (`pushing`).
"""

from __future__ import annotations

# linear in all their floating point tensors together
LINEAR = frozenset("""
adjoint alias_copy as_strided as_strided_copy as_strided_scatter atleast_1d atleast_2d atleast_3d bfloat16 block_diag broadcast_tensors
broadcast_to cat cdouble cfloat chunk clone column_stack conj conj_physical constant_pad_nd contiguous cpu cuda cumsum diag diag_embed diagflat
diagonal diagonal_copy diagonal_scatter diff double dsplit dstack embedding expand expand_copy fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn
fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fftshift ifftshift
flatten flip fliplr flipud float gather half hsplit hstack imag index index_add index_copy index_select masked_select mean meshgrid movedim
narrow narrow_copy permute permute_copy ravel real repeat repeat_interleave reshape resolve_conj resolve_neg roll rot90 scatter_add select
select_copy select_scatter slice_copy slice_scatter split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy stack sum
sum_to_size swapaxes swapdims t t_copy take take_along_dim tensor_split tile to trace transpose transpose_copy tril triu type unbind unbind_copy
unflatten unfold unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy view view_as_complex view_as_complex_copy
view_as_real view_as_real_copy view_copy vsplit vstack
""".split())
# linear in the first argument; of the others they take a shape or a type
IN_THE_FIRST = frozenset("expand_as reshape_as type_as view_as".split())
# linear in each of their floating point tensors by itself; a bias (the third argument) is added
PRODUCTS = frozenset("""
bmm chain_matmul cross dot einsum inner kron matmul mm multi_dot mv outer tensordot vdot vecdot
""".split())
WITH_BIAS = frozenset("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear".split())
# views that replace the tensor they are of
VIEWS_IN_PLACE = frozenset("as_strided_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_".split())
# what has no derivative, or looks at values and memory only; by the function's name
PRIMAL = frozenset("""
__bool__ __complex__ __contains__ __float__ __format__ __index__ __int__ backward detach is_pinned is_set_to is_shared item numpy pin_memory
record_stream resize_ resize_as_ set_ share_memory_ tolist
""".split())
