// Why a burst is not kept.
import Files

/// Why a burst is not kept.
typealias RecordingError = FileError
