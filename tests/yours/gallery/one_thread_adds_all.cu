// title: One thread adds everything
// verdict: right, within limits
// lesson: Where most people start. Nothing is wrong with it but the time.

__global__ void serial(const double *in, double *out, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += in[i];
    *out = sum;
}
