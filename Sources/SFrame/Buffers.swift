// Lending arrays as raw buffers, for the conveniences that are not on the packet path.

/// Calls `body` with the bytes of two arrays.
func withBytes<Value>(
    _ first: [UInt8], _ second: [UInt8],
    _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) throws(SFrameError) -> Value
) throws(SFrameError) -> Value {
    let result: Result<Value, SFrameError> = first.withUnsafeBytes { first in
        second.withUnsafeBytes { second in
            Result { () throws(SFrameError) in try body(first, second) }
        }
    }
    return try result.get()
}

/// A new array of at most `capacity` bytes, as many as `body` says it wrote.
func makeArray(
    capacity: Int, _ body: (UnsafeMutableRawBufferPointer) throws(SFrameError) -> Int
) throws(SFrameError) -> [UInt8] {
    var failure: SFrameError?
    let bytes = [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
        do throws(SFrameError) {
            count = try body(UnsafeMutableRawBufferPointer(buffer))
        } catch {
            failure = error
        }
    }
    if let failure { throw failure }
    return bytes
}
