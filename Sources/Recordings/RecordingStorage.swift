// Where recordings are kept, as the rules of writing see it.

/// Keeps recordings: a folder, or in simulations a disk that fails.
protocol RecordingStorage {
    /// Makes it ready, if it is not.
    func make() throws(RecordingError)
    /// Saves what is whole of the recordings that a process left behind when it was killed, and removes the others.
    ///
    /// - Returns: How many were saved and how many removed.
    func recover() throws(RecordingError) -> (saved: Int, removed: Int)
    /// Removes the recordings that are too old or too many.
    ///
    /// - Parameters:
    ///   - now: Seconds since 1970.
    ///   - elapsed: Seconds since the last time by the monotonic clock; 0 at a start.
    /// - Returns: How many were removed.
    func rotate(now: Int, elapsed: Int) throws(RecordingError) -> Int
    /// Begins a recording.
    func begin(_ label: RecordingLabel) throws(RecordingError) -> any RecordingOutput
}

/// One recording that is being written.
protocol RecordingOutput: AnyObject {
    /// What has been written.
    var byteCount: Int { get }
    /// Adds bytes.
    func write(_ bytes: [UInt8]) throws(RecordingError)
    /// It is whole: it gets its name.
    func publish() throws(RecordingError)
    /// Nothing of it is kept, unless it has its name.
    func discard()
}
