// Lending Swift arrays to C without copying.
import CGnuTLS

/// Calls `body` with the bytes as a GnuTLS datum that is valid during the call. GnuTLS reads it only.
func withDatum<Result>(_ bytes: [UInt8], _ body: (UnsafePointer<gnutls_datum_t>) -> Result) -> Result {
    bytes.withUnsafeBufferPointer { buffer in
        var datum = gnutls_datum_t(
            data: UnsafeMutablePointer(mutating: buffer.baseAddress), size: UInt32(buffer.count))
        return body(&datum)
    }
}

/// Calls `body` with the bytes of three arrays.
func withBytes<Value>(
    _ first: [UInt8], _ second: [UInt8], _ third: [UInt8],
    _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer, UnsafeRawBufferPointer) throws(CryptographyError) -> Value
) throws(CryptographyError) -> Value {
    let result: Result<Value, CryptographyError> = first.withUnsafeBytes { first in
        second.withUnsafeBytes { second in
            third.withUnsafeBytes { third in
                Result { () throws(CryptographyError) in try body(first, second, third) }
            }
        }
    }
    return try result.get()
}

/// A new array of at most `capacity` bytes, as many as `body` says it wrote.
func makeArray(
    capacity: Int, _ body: (UnsafeMutableRawBufferPointer) throws(CryptographyError) -> Int
) throws(CryptographyError) -> [UInt8] {
    var failure: CryptographyError?
    let bytes = [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
        do throws(CryptographyError) {
            count = try body(UnsafeMutableRawBufferPointer(buffer))
        } catch {
            failure = error
        }
    }
    if let failure { throw failure }
    return bytes
}
