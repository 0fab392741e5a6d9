// The backlog of lines to write, and the number of lines that were dropped because it was full. Pure.

/// A bounded queue of lines. What does not fit is counted; the count stands behind the lines that were there before.
struct LineBacklog {
    /// Bytes that wait.
    static let bytesMax = 256 * 1024
    /// The part of it that is kept for warnings and errors.
    static let reservedBytes = 64 * 1024

    private var bytes: [UInt8] = []
    private var dropped = 0

    /// Whether there is nothing to write.
    var isEmpty: Bool { bytes.isEmpty && dropped == 0 }

    /// Adds a line, or counts it.
    ///
    /// - Parameter isImportant: Whether it may use the reserved part.
    mutating func add(_ line: some Collection<UInt8>, isImportant: Bool) {
        let limit = isImportant ? Self.bytesMax : Self.bytesMax - Self.reservedBytes
        if bytes.count + line.count <= limit { bytes.append(contentsOf: line) } else { dropped += 1 }
    }

    /// Takes everything out: the lines, and how many are missing after them.
    mutating func take() -> (bytes: [UInt8], dropped: Int) {
        defer { self = LineBacklog() }
        return (bytes, dropped)
    }
}
