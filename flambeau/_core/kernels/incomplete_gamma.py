"""Numbers of the incomplete gamma functions, for whatever they are written in.

They are worked out in double: the series of P for x < a + 1, Lentz's continued fraction of Q beyond (Abramowitz and Stegun 6.5.29, 6.5.31), and for
large a near x Temme's uniform expansion (1979); Q for small a and x by what is left of 1, term by term (6.5.29 with 6.1.33).
"""

from __future__ import annotations

EPS, EPS_OF_FLOAT = 2.0 ** -53, 2.0 ** -34  # terms of less than these parts of a sum are left out
MOST = 10000.0  # steps of a series
# Temme (1979), table of the coefficients of C0 and C1 in powers of eta
C0 = (-1 / 3, 1 / 12, -1 / 135, -1 / 864, 1 / 2835, 139 / 777600, -1 / 25515, -571 / 261273600)
C1 = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860)
# log(Gamma(1 + a)) = a times these in powers of a: -gamma, and zeta(k) (-1)^k / k
LOG_GAMMA = (
    -0.5772156649015329, 0.8224670334241132, -0.40068563438653143, 0.27058080842778454, -0.20738555102867398, 0.1695571769974082,
    -0.1440498967688461, 0.12550966952474304, -0.11133426586956469, 0.1000994575127818, -0.09095401714582904, 0.083353840546109,
    -0.0769325164113522, 0.07143294629536133, -0.06666870588242046, 0.06250095514121304, -0.058823978658684585, 0.055555767627403614,
    -0.05263167937961666, 0.05000004769810169, -0.047619070330142226, 0.04545455629320467, -0.04347826605304026,
)
SMALL = 0.2  # a, below which 1 - P would lose Q's digits
