// Which bursts are recorded, where, and how much of them is kept.

import Audio
import MonotonicTime

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
