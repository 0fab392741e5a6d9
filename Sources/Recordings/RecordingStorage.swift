// What is recorded, where recordings are kept, and why one is not.
import Audio
import Files
import MonotonicTime

/// Keeps recordings: a folder, or in simulations a disk that fails.
protocol RecordingStorage {
    /// Makes it ready, if it is not.
    func make() throws(RecordingError)
    /// Saves what is whole of the recordings that a process left behind when it was killed, and removes the others.
    ///
    /// - Returns: How many were saved and how many removed.
    /// - Throws: Why one could not be saved; the others were.
    func recover() throws(RecordingError) -> (saved: Int, removed: Int)
    /// Removes the recordings that are too old or too many.
    ///
    /// - Parameters:
    ///   - now: Seconds since 1970.
    ///   - elapsed: Seconds since the last time by the monotonic clock; 0 at a start.
    /// - Returns: How many were removed.
    /// - Throws: Why one could not be removed; the others were.
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
    /// Waits until what was written is on the disk: a power failure leaves it there.
    func synchronize() throws(RecordingError)
    /// It is whole: it gets its name.
    func publish() throws(RecordingError)
    /// Nothing of it is kept, unless it has its name.
    func discard()
}

/// Where talk bursts are kept as files, and how many of them.
public struct RecordingSettings: Equatable, Sendable {
    /// The most files that are kept, whatever their size: listing them stays a matter of milliseconds.
    public static let filesMax = 10_000

    /// The folder; it is made when it is not there.
    public var folder: String
    /// Older ones are removed.
    public var age: Duration
    /// The most bytes of all of them; the oldest go first. One that is longer is kept up to here.
    public var byteCountMax: Int
    /// Whether own bursts are kept, too.
    public var includesOwn: Bool
    /// The most files; the oldest go first.
    public var fileCountMax: Int

    /// Recordings in `folder`: for 30 days, at most 500 MB, without own ones.
    public init(
        folder: String, age: Duration = .seconds(30 * 86_400), byteCountMax: Int = 500_000_000,
        includesOwn: Bool = false, fileCountMax: Int = filesMax
    ) {
        self.folder = folder
        self.age = age
        self.byteCountMax = byteCountMax
        self.includesOwn = includesOwn
        self.fileCountMax = fileCountMax
    }
}

/// Who speaks, where and when.
public struct RecordingLabel: Equatable, Sendable {
    /// The talker's name, as it is shown.
    public var talker: String
    /// The channel's.
    public var channel: String
    /// When the burst began, in whole seconds since 1970 (UTC).
    public var secondsSince1970: Int

    /// A label of these parts.
    public init(talker: String, channel: String, secondsSince1970: Int) {
        self.talker = talker
        self.channel = channel
        self.secondsSince1970 = secondsSince1970
    }
}

/// Why a burst is not kept.
typealias RecordingError = FileError
