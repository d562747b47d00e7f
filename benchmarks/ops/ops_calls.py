"""With which arguments `make bench-ops` calls each operation, by families.

`FAMILIES` names every operation that no namespace's own family takes: alone where the names of its parameters say it all
(`NAMED`), or with its arguments after a colon, in the names of ops_values.  The names stand for every namespace unless
one is said ("linalg.norm").  `STATEMENTS` are the lines that are no call of a name.
"""

from __future__ import annotations

# What a required parameter of this name is given.
NAMED = {
    **dict.fromkeys(("input", "self", "A", "x", "x1", "a", "data", "g", "tensor", "elements", "input1", "anchor", "abs", "y"), "x"),
    **dict.fromkeys(("other", "exponent", "end", "b", "x2", "tensor1", "mat1", "mat2", "batch1", "values", "first", "source", "src", "input2",
                     "B", "positive", "angle", "the_template", "test_elements", "template"), "y"),
    **dict.fromkeys(("tensor2", "weight", "second", "negative", "batch2"), "z"),
    **dict.fromkeys(("dim", "axis"), "0"), **dict.fromkeys(("index", "indices"), "index"), "mask": "mask", "p": "2",
    **dict.fromkeys(("size", "shape"), "shape"), "n": "n", "value": "0.5", "min": "0.3", "max": "0.7", "fill_value": "0.5",
    "tensors": "(x, y)", "k": "2", "window_length": "n",
}

FAMILIES = {
    "views": """
        view: x, nn | reshape: x, (nn,) | permute: x, (1, 0) | transpose: x, 0, 1 | swapaxes: x, 0, 1 | t | expand: row, n, n | unsqueeze: x, 0
        squeeze: row | select: x, 0, 1 | narrow: x, 0, 1, 2 | as_strided: x, (2, 2), strides | detach | split: x, half
        split_with_sizes: x, [1, last] | unsafe_split: x, half | unsafe_split_with_sizes: x, [1, last] | chunk: x, 2 | unsafe_chunk: x, 2
        tensor_split: x, 2 | hsplit: x, 2 | vsplit: x, 2 | dsplit: b1, 2 | unbind | flatten | unflatten: x, 0, (2, -1) | ravel | movedim: x, 0, 1
        diagonal | linalg.diagonal | Tensor.unfold: x, 0, 2, 1 | view_as: x, y | reshape_as: x, y | expand_as: row, x | broadcast_to: row, shape
        broadcast_tensors: row, x | adjoint | atleast_1d | atleast_2d | atleast_3d | real: c | imag: c | conj: c | resolve_conj: c | resolve_neg
        view_as_real: c | view_as_complex: pairs | alias_copy | as_strided_copy: x, (2, 2), strides | detach_copy | diagonal_copy
        expand_copy: row, shape | narrow_copy: x, 0, 1, 2 | permute_copy: x, (1, 0) | select_copy: x, 0, 1 | squeeze_copy: row | t_copy
        transpose_copy: x, 0, 1 | unbind_copy | unfold_copy: x, 0, 2, 1 | unsqueeze_copy: x, 0 | view_copy: x, (nn,) | split_copy: x, half
        split_with_sizes_copy: x, [1, last] | slice_copy: x, 0, 1, 3 | view_as_real_copy: c | view_as_complex_copy: pairs | meshgrid: v, w
        squeeze_: = o_row.squeeze_(0).unsqueeze_(0) | unsqueeze_: = o.unsqueeze_(0).squeeze_(0) | transpose_: o, 0, 1 | t_: o
        as_strided_: o, shape, strides | swapaxes_: o, 0, 1 | swapdims_: o, 0, 1 | set_: o, x | detach_: o | resize_: o, n, n | resize_as_: o, x
        is_set_to: x, y""",
    "copies": """
        clone | contiguous: x.t() | copy_: o, x | to: x, torch.float64 | type_as: x, whole | float: whole | double | half | bfloat16 | int | long
        short | char | byte | bool | cfloat | cdouble | cpu | tril | triu | diag: v | diag_embed: v | diagflat: v | fill_diagonal_: o, 0.5
        flip: x, (0,) | fliplr | flipud | roll: x, 1, 0 | rot90 | constant_pad_nd: x, (1, 1) | pad: image, (1, 1, 1, 1) | repeat: x, 2, 2
        tile: x, (2, 2) | repeat_interleave: x, 2 | cat | stack | hstack | vstack | dstack | column_stack | block_diag: x, y | cartesian_prod: v, w
        combinations: v | select_scatter: x, v, 0, 1 | slice_scatter: x, row, 0, 1, 2 | diagonal_scatter: x, v
        as_strided_scatter: x, row, (1, 4), strides | complex: x, y | polar: x, y | conj_physical: c | positive | channel_shuffle: image4, 2
        native_channel_shuffle: image4, 2 | pixel_shuffle: image4, 2 | pixel_unshuffle: image, 2 | Tensor.type: x, torch.float64""",
    "creation": """
        empty: n, n | zeros: n, n | ones: n, n | full: shape, 0.5 | empty_strided: shape, strides | empty_permuted: shape, (1, 0) | empty_like
        new_empty: x, shape | zeros_like | new_zeros: x, shape | ones_like | new_ones: x, shape | full_like: x, 0.5 | new_full: x, shape, 0.5
        new_empty_strided: x, shape, strides | new_tensor: x, nested | arange: n | range: 0, n | linspace: 0.0, 1.0, n | logspace: 0.0, 1.0, n
        eye: n | tensor: nested | scalar_tensor: 0.5 | from_numpy: array | as_tensor: nested | asarray: nested | from_dlpack: x | to_dlpack: x
        frombuffer: memory, dtype=torch.float32 | fill_: o, 0.5 | zero_: o | fill: x, 0.5 | tril_indices: n, n | triu_indices: n, n | vander: v
        linalg.vander: v | one_hot: target | hann_window | hamming_window | blackman_window | bartlett_window | kaiser_window | new | fft.fftfreq: n
        fft.rfftfreq: n | affine_grid: theta, theta_size
        affine_grid_generator: theta, theta_size, False""",
    "random": """
        rand: n, n | rand_like | randn: n, n | randn_like | randint: 0, 9, shape | randint_like: x, 0, 9 | normal: x, y | uniform_: o | normal_: o
        random_: o | exponential_: o | cauchy_: o | log_normal_: o | geometric_: o, 0.5 | bernoulli | bernoulli_: o | dropout | dropout_: o
        native_dropout: x, 0.5, True | dropout1d: line | dropout2d: image | dropout3d: volume | alpha_dropout: x, 0.5, True
        feature_alpha_dropout: image, 0.5, True | feature_dropout: image, 0.5, True | torch.dropout: x, 0.5, True | torch.dropout_: o, 0.5, True
        randperm: n | multinomial: x, 2 | poisson | binomial: one, x | rrelu: x, 0.1, 0.3, True | rrelu_: o, 0.1, 0.3, True | gumbel_softmax: x""",
    "comparison": """
        lt | le | gt | ge | eq | ne | isclose | equal | allclose | isnan | isinf | isfinite | isposinf | isneginf | isreal | signbit | logical_and
        logical_or | logical_xor | logical_not | is_nonzero: scalar | isin | nonzero | argwhere | nonzero_static: x, size=4 | is_same_size: x, y""",
    "pointwise": """
        bitwise_and: whole, whole2 | bitwise_or: whole, whole2 | bitwise_xor: whole, whole2 | bitwise_not: whole | bitwise_left_shift: whole, whole2
        bitwise_right_shift: whole, whole2 | gcd: whole, whole2 | lcm: whole, whole2 | lerp: x, y, z | where: mask, x, y | addcmul: x, y, z
        addcdiv: x, y, z | pow: x, 2.5 | float_power: x, 2.5 | clamp: x, 0.3, 0.7 | ldexp: x, whole2 | polygamma: 1, x | polygamma_: o, 1
        mvlgamma: one, 1 | mvlgamma_: o_one, 1 | threshold: x, 0.5, 0.0 | prelu: x, scalar1 | glu | heaviside | frexp | lerp_: o, y, z | rsub
        clamp_min: x, 0.3 | clamp_max: x, 0.7 | angle: c | sgn | celu | nan_to_num | threshold_: o, 0.5, 0.0""",
    "special": """
        special.chebyshev_polynomial_t: x, 3 | special.chebyshev_polynomial_u: x, 3 | special.chebyshev_polynomial_v: x, 3
        special.chebyshev_polynomial_w: x, 3 | special.shifted_chebyshev_polynomial_t: x, 3 | special.shifted_chebyshev_polynomial_u: x, 3
        special.shifted_chebyshev_polynomial_v: x, 3 | special.shifted_chebyshev_polynomial_w: x, 3 | special.hermite_polynomial_h: x, 3
        special.hermite_polynomial_he: x, 3 | special.laguerre_polynomial_l: x, 3 | special.legendre_polynomial_p: x, 3 | special.zeta: one, y""",
    "reductions": """
        sum | sum_to_size: x, 1, n | nansum | mean | nanmean | prod | all: mask | any: mask | count_nonzero | var | std | var_mean | std_mean | norm
        linalg.norm | linalg.vector_norm | linalg.matrix_norm | frobenius_norm: x, (0, 1) | nuclear_norm | dist | logsumexp: x, 1 | trace: x | max
        norm_except_dim: x
        min | amax: x, 1 | amin: x, 1 | aminmax | argmax: x, 1 | argmin: x, 1 | median: x, 1 | nanmedian: x, 1 | mode | quantile: x, 0.5
        nanquantile: x, 0.5 | kthvalue: x, 2 | hash_tensor | segment_reduce: v, "sum", lengths=lengths | cov | corrcoef | trapezoid
        cumulative_trapezoid | diff | gradient | histc: x, 4 | histogram: x, 4 | histogramdd: points, [2, 2, 2] | bincount: target""",
    "rows": """
        softmax: x, 1 | log_softmax: x, 1 | softmin: x, 1 | layer_norm: x, (n,), v, w | native_layer_norm: x, (n,), v, w, 1e-5
        rms_norm: x, (n,), v | group_norm: image4, 2, bias4, bias4 | native_group_norm: image4, bias4, bias4, batch, channels, pixels, 2, 1e-5
        batch_norm: image, mean3, var3, w3, bias3, True | torch.batch_norm: image, w3, bias3, mean3, var3, True, 0.1, 1e-5, False
        native_batch_norm: image, w3, bias3, mean3, var3, True, 0.1, 1e-5 | instance_norm: image
        torch.instance_norm: image, w3, bias3, mean3, var3, True, 0.1, 1e-5, False | local_response_norm: image, 2 | normalize | cosine_similarity
        pairwise_distance | renorm: x, 2, 0, 0.5 | renorm_: o, 2, 0, 0.5""",
    "scans": "cumsum | cumprod | cummax | cummin | logcumsumexp",
    "products": """
        mm | bmm: b1, b2 | matmul | dot: v, w | vdot: v, w | mv: x, v | outer: v, w | addmm: x, y, z | baddbmm: b1, b2, b3 | addmv: v, x, w
        addr: x, v, w | addbmm: x, b1, b2 | linear: x, y, v | inner | tensordot | kron | linalg.multi_dot: (x, y, z) | chain_matmul: x, y, z
        einsum: "ij,jk->ik", x, y | bilinear: x, y, bilinear_w | cdist: points, points2 | pdist: points | linalg.vecdot
        linalg.cross: points, points2, dim=1 | cross: points, points2, dim=1 | spmm: sparse, x | smm: sparse, x | hspmm: sparse, x
        sspaddmm: sparse, sparse, x | sparse_coo_tensor: coordinates, three, shape | sparse_csr_tensor: rows_at, columns_at, three, shape
        sparse_compressed_tensor: rows_at, columns_at, three, shape, layout=torch.sparse_csr | sparse_csc_tensor: rows_at, columns_at, three, shape
        sparse_bsr_tensor: rows_at, columns_at, three[:, None, None], shape | sparse_bsc_tensor: rows_at, columns_at, three[:, None, None], shape
        grouped_mm: b1, b2""",
    "attention": """
        scaled_dot_product_attention: q, k, heads | multi_head_attention_forward: sq, sk, sv, width, nh, in_w, in_b, None, None, False, 0.0, out_w, out_b""",
    "convolutions": """
        conv1d: line, k1, bias4 | conv2d: image, k2, bias4 | conv3d: volume, k3, bias4 | conv_transpose1d: line, t1, bias4
        convolution: image, k2, bias4, (1, 1), (0, 0), (1, 1), False, (0, 0), 1 | conv_tbc: b1, b2, v
        conv_transpose2d: image, t2, bias4 | conv_transpose3d: volume, t3, bias4 | fold: columns, folded, (2, 2)
        nn.functional.unfold: image, (3, 3)""",
    "pooling": """
        max_pool1d: line, 2 | max_pool2d: image, 2 | max_pool3d: volume, 2 | max_pool1d_with_indices: line, 2 | max_pool2d_with_indices: image, 2
        max_pool3d_with_indices: volume, 2 | avg_pool1d: line, 2 | avg_pool2d: image, 2 | avg_pool3d: volume, 2 | adaptive_avg_pool1d: line, 2
        adaptive_avg_pool2d: image, 2 | adaptive_avg_pool3d: volume, 2 | adaptive_max_pool1d: line, 2 | adaptive_max_pool2d: image, 2
        adaptive_max_pool1d_with_indices: line, 2 | adaptive_max_pool2d_with_indices: image, 2 | adaptive_max_pool3d_with_indices: volume, 2
        adaptive_max_pool3d: volume, 2 | fractional_max_pool2d: image, 2, 4 | fractional_max_pool2d_with_indices: image, 2, 4
        fractional_max_pool3d: volume, 2, 2 | fractional_max_pool3d_with_indices: volume, 2, 2 | lp_pool1d: line, 2, 2 | lp_pool2d: image, 2, 2
        lp_pool3d: volume, 2, 2 | max_unpool1d: p1, i1, 2 | max_unpool2d: p2, i2, 2 | max_unpool3d: p3, i3, 2""",
    "resampling": """
        interpolate: image, scale_factor=2 | upsample: image, scale_factor=2 | upsample_nearest: image, scale_factor=2
        upsample_bilinear: image, scale_factor=2 | grid_sample: image, grid, align_corners=False
        grid_sampler: image, grid, 0, 0, False | grid_sampler_2d: image, grid, 0, 0, False
        grid_sampler_3d: volume, volume[:, :3].movedim(1, -1), 0, 0, False""",
    "gather and scatter": """
        gather: x, 0, index | scatter: x, 0, index, y | scatter_add: x, 0, index, y | scatter_reduce: x, 0, index, y, "sum"
        take_along_dim: x, index, 0 | index_select: x, 0, order | index_add: x, 0, order, y | index_copy: x, 0, order, y
        index_fill: x, 0, order, 0.5 | index_reduce: x, 0, order, y, "amax" | take: x, index | put: x, index, y | put_: o, index, y
        index_put: x, (order,), y | index_put_: o, (order,), y | masked_fill: x, mask, 0.5 | masked_scatter: x, mask, y | masked_select: x, mask
        embedding: target, x | torch.embedding: x, target | embedding_renorm_: o, index, 1.0, 2.0
        embedding_bag: target, x, offsets | torch.embedding_bag: x, target, offsets
        unravel_index: target, shape | sparse_mask: x, sparse""",
    "sorting and searching": "sort | argsort | msort | topk: x, 2 | unique | unique_consecutive | searchsorted: sorted_, x | bucketize: x, sorted_",
    "losses": """
        nll_loss: x, target | cross_entropy: x, target | linear_cross_entropy: x, y, target | mse_loss: x, y | l1_loss: x, y | smooth_l1_loss: x, y
        huber_loss: x, y | binary_cross_entropy: x, y | binary_cross_entropy_with_logits: x, y | kl_div: x, y | poisson_nll_loss: x, y
        torch.poisson_nll_loss: x, y, True, False, 1e-8, 1
        gaussian_nll_loss: x, y, z | cosine_embedding_loss: x, y, v_signs | hinge_embedding_loss: x, signs | margin_ranking_loss: v, w, v_signs
        multi_margin_loss: x, target | multilabel_margin_loss: x, index | multilabel_soft_margin_loss: x, y | soft_margin_loss: x, signs
        triplet_margin_loss: x, y, z | triplet_margin_with_distance_loss: x, y, z | ctc_loss: log_probs, labels, input_len, target_len""",
    "linear algebra": """
        linalg.solve_triangular: triangle, right, upper=False | triangular_solve: right, triangle, False | linalg.solve_ex: definite, right
        linalg.solve: definite, right | linalg.inv_ex: definite | linalg.inv: definite | inverse: definite | linalg.cholesky_ex: definite
        linalg.cholesky: definite | cholesky: definite | cholesky_solve: right, triangle | cholesky_inverse: triangle | linalg.det: definite
        det: definite | linalg.slogdet: definite | slogdet: definite | logdet: definite | linalg.eigh: definite | linalg.eigvalsh: definite
        linalg.eig: definite | linalg.eigvals: definite | linalg.matrix_exp: low | matrix_exp: low | linalg.matrix_power: low, 3 | matrix_power: low, 3
        linalg.qr: definite | qr: definite | geqrf: right | linalg.householder_product: low, right1 | orgqr: low, right1 | ormqr: low, right1, right
        linalg.ldl_factor_ex: definite | linalg.ldl_factor: definite | linalg.ldl_solve: ldl, ldl_pivots, right | linalg.lu_factor_ex: definite
        linalg.lu_factor: definite | linalg.lu: definite | lu_unpack: lu, pivots | linalg.lu_solve: lu, pivots, right | lu_solve: right, lu, pivots
        linalg.svd: definite | linalg.svdvals: definite | svd: definite | svd_lowrank: definite, 2 | pca_lowrank: definite, 2
        linalg.cond: definite | linalg.tensorinv: cube, 1 | linalg.tensorsolve: definite, right1 | linalg.pinv: definite | pinverse: definite
        linalg.matrix_rank: definite | linalg.lstsq: definite, right""",
    "fft": """
        fft.ifft: c | fft.ifft2: c | fft.ifftn: c | fft.irfft: c | fft.irfft2: c | fft.irfftn: c | fft.hfft: c | fft.hfft2: c | fft.hfftn: c
        stft: signal, frame, window=window, return_complex=True | istft: spectrum, frame, window=window""",
    "queries": """
        item: scalar | tolist | numpy: x | dim | numel | nelement | size | stride | storage_offset | data_ptr | element_size | get_device
        is_complex | is_conj | is_contiguous | is_floating_point | is_inference | is_neg | is_signed | is_pinned | is_shared | is_coalesced: sparse
        indices_copy: sparse_c | values_copy: sparse_c | col_indices_copy: csr | crow_indices_copy: csr
        ccol_indices_copy: csr.to_sparse_csc() | row_indices_copy: csr.to_sparse_csc() | native_norm: sparse_c
        indices: sparse_c | values: sparse_c | coalesce: sparse | sparse_dim: sparse | dense_dim: sparse | col_indices: csr | crow_indices: csr
        to_dense: sparse | to_sparse | to_sparse_csr | to_sparse_bsr: x, (2, 2) | to_sparse_bsc: x, (2, 2)
        requires_grad_: o | storage | untyped_storage | result_type: x, y
        can_cast: torch.int32, torch.float32 | promote_types: torch.int32, torch.float32 | broadcast_shapes: shape, (1, 4) | __array__ | __dlpack__
        __dlpack_device__ | __deepcopy__: x, {} | __reduce_ex__: x, 4 | __contains__: x, 0.5""",
}

# Lines that call no name: operators, indexing, attributes.  One that assigns writes into a value whose name begins with "o".
STATEMENTS = """
    x + y; x - y; x * y; x / y; x // y; x % y; x ** y; x ** 2; x + 1; x * 2.0; 1 - x; 2 / x; 2 ** x; x @ y; -x; +x; abs(x); x < y; x <= 0.5; x > y
    x >= y; x == y; x != 0; x + row; x + scalar; x.t() + y
    whole & whole2; whole | whole2; whole ^ whole2; ~mask; mask & mask2; whole << 1; whole >> 1
    x[0]; x[-1]; x[1:3]; x[::2]; x[:, 1]; x[..., 1:]; x[None]; x[..., None]; x[0, 1]; x[1:3, 1:3]; x[mask]; x[order]; x[order, order]; x[:, order]
    x[[0, 2]]; o[0] = v; o[1:3] = 0.5; o[0, 1] = 0.5; o[:, 1] = v; o[mask] = 0.5; o[order] = y; o[...] = y
    o += zero; o -= zero; o *= one; o /= one; o //= one; o %= one; o **= 1; o @ one; o_whole &= whole; o_whole |= whole2; o_whole ^= whole2
    o_whole <<= 0; o_whole >>= 0
    x.T; x.mT; x.H; x.mH; x.data; x.shape; x.dtype; x.device; x.ndim; x.requires_grad; x.is_leaf; x.grad
    len(x); bool(scalar); float(scalar); int(scalar); list(x); x.sum(1); x.mean(0); x.sum(1, keepdim=True); x.max(); x.min(); x.argmax(); x.t().contiguous()
    x.reshape(-1); x.to(torch.bfloat16); x.std(1); x.flatten().tolist(); repr(x)
    x[:, ::2].flip(1); torch.stack((x, y), -1); x.view(-1, 4).cumsum(1); x.view(-1, 8).cumprod(1); whole.aminmax(); x.view(-1, 2).mT.contiguous()
    image.permute(0, 2, 3, 1).contiguous(); c.flip(1); x.t().index_select(0, order); x.index_select(1, order)
    x.view(-1, 2, 2) @ y.view(-1, 2, 2); x.view(-1, 2, 2) @ y.view(-1, 2, 2)[0, :, 0]
"""

# In place: with which arguments a call can be repeated without its numbers running away (the general way is the function's arguments).
INPLACE = {
    "mul_": "o, one", "div_": "o, one", "true_divide_": "o, one", "pow_": "o, 1.5", "float_power_": "o_double, 1.5",
    "add_": "o, zero", "sub_": "o, zero", "addcmul_": "o, zero, y", "addcdiv_": "o, zero, y", "addmm_": "o, y, zero", "cumsum_": "o, 0",
    "addbmm_": "o, b1, b2, beta=0.5", "addr_": "o, v, w, beta=0.5", "baddbmm_": "o_b, b1, b2, beta=0.5", "addmv_": "o_v, x, w, beta=0.5",
    "index_add_": "o, 0, order, zero", "scatter_add_": "o, 0, index, zero", "gcd_": "o_whole, whole2", "lcm_": "o_whole, whole", "ldexp_": "o, whole2",
    "bitwise_and_": "o_whole, whole", "bitwise_or_": "o_whole, whole", "bitwise_xor_": "o_whole, whole", "bitwise_not_": "o_whole",
    "bitwise_left_shift_": "o_whole, 0", "bitwise_right_shift_": "o_whole, 0", }

# Public names that are lines in no way, and why.
SKIPPED = {
    "needs a GPU": "cuda record_stream pin_memory",
    "is in every line with backward, or says something only there": "backward retain_grad",
    "takes a file": "from_file",
    "is of Python's numbers": "sym_ite sym_sum",
    "raises an error whatever it is given": "reinforce",
    "has parameters of its own shapes; a network's step is a line of `make bench`": "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    "takes a Python function, or what such a call gave": "fork wait boolean_dispatch",
    "takes a Python function": "cond explain apply_ map_ map2_ register_hook register_post_accumulate_grad_hook",
}
