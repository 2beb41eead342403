"""One Spec varied along axes, many seeds in every cell: shares, times, boundaries and laws."""
