// bcryptprimitives.dll for a wine without one. Go programs take their random
// numbers from its ProcessPrng; this one takes them from RtlGenRandom, which
// advapi32 exports under the name SystemFunction036.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG size);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T size)
{
	while (size > 0) {
		ULONG n = size < 1 << 20 ? (ULONG)size : 1 << 20;
		if (!SystemFunction036(buffer, n))
			return FALSE;
		buffer += n;
		size -= n;
	}
	return TRUE;
}
