// Which microphone or speaker: the text of a configuration file as a value. Opening it is done elsewhere.

/// A microphone or a speaker, as named in a configuration file.
///
/// Written `alsa:NAME` or just `NAME` for an ALSA PCM (`default`, `pulse`, `pipewire`, `hw:1,0`, `plughw:CARD=Device`,
/// …), or `wav:PATH` for a file: as a microphone it is read from its beginning at every press and followed by silence;
/// as a speaker it is (over)written as 48 kHz mono 16-bit.
public enum AudioDevice: Hashable, Sendable, CustomStringConvertible {
    /// An ALSA PCM by name.
    case alsa(String)
    /// A WAV file by path.
    case wav(path: String)

    /// Longest accepted text, in UTF-8 bytes.
    public static let lengthMax = 4096

    /// Reads a device from its configuration text.
    ///
    /// - Throws: `AudioError.invalidDeviceName` saying what is wrong with the text.
    public init(_ text: String) throws(AudioError) {
        func invalid(_ reason: String) -> AudioError { .invalidDeviceName(String(text.prefix(80)), reason: reason) }
        guard text.utf8.count <= Self.lengthMax else { throw invalid("it is longer than \(Self.lengthMax) bytes") }
        guard !text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
            throw invalid("it contains a control character")
        }
        if text.hasPrefix("wav:") {
            let path = String(text.dropFirst(4))
            guard !path.isEmpty else { throw invalid("the path after wav: is missing") }
            self = .wav(path: path)
            return
        }
        let name = text.hasPrefix("alsa:") ? String(text.dropFirst(5)) : text
        guard !name.isEmpty else { throw invalid("the name is missing") }
        guard name.utf8.first != UInt8(ascii: " "), name.utf8.last != UInt8(ascii: " ") else {
            throw invalid("it begins or ends with a space")
        }
        // An absolute path is never the name of a PCM, so say what was probably meant.
        guard name.utf8.first != UInt8(ascii: "/") else { throw invalid("write a file as wav:\(name)") }
        self = .alsa(name)
    }

    /// The configuration text, with its prefix.
    public var description: String {
        switch self {
        case .alsa(let name): "alsa:\(name)"
        case .wav(let path): "wav:\(path)"
        }
    }
}
