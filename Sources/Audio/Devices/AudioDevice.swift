// Which microphone or speaker: the text of a configuration file as a value, whether it exists, and what somebody wears instead.
import CALSA

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

extension AudioDevice {
    /// What a device is wanted for.
    public enum Use: Sendable {
        /// As a microphone.
        case microphone
        /// As a speaker.
        case speaker
    }

    /// The problem with the device, as far as opening and closing it shows. Nothing is captured or played, and no file
    /// is written. A device in use by another program counts as present. It may take as long as a sound server takes to
    /// answer.
    public func problem(asA use: Use) -> AudioError? {
        do throws(AudioFault) {
            switch (self, use) {
            case (.alsa(let name), .microphone): try ALSAPCM(name: name, stream: SND_PCM_STREAM_CAPTURE).close()
            case (.alsa(let name), .speaker): try ALSAPCM(name: name, stream: SND_PCM_STREAM_PLAYBACK).close()
            case (.wav, .microphone): _ = try makeCaptureSource(self, period: .milliseconds(10))
            case (.wav, .speaker): break
            }
            return nil
        } catch {
            return error.isBusy ? nil : AudioError(error, device: self)
        }
    }
}

/// What a worn device offers at present.
public struct WornSound: Hashable, Sendable {
    /// Where own speech comes from.
    public enum Microphone: Hashable, Sendable {
        /// The configured microphone. Who pressed the talk key wears no other.
        case configured
        /// The worn microphone. Its Bluetooth link comes up when it is opened.
        case device(AudioDevice)
        /// The worn microphone, which is not there yet: the device is being switched to its hands-free profile.
        case awaited
        /// The worn microphone cannot be used, for this reason. The configured one is used in its place.
        case missing(String)
    }

    /// Which microphone the next transmission uses.
    public var microphone: Microphone
    /// The worn speaker; nil: the configured speaker is used.
    public var speaker: AudioDevice?
    /// The link is to stay up between transmissions: the speaker plays silence meanwhile.
    public var keepsLink: Bool
    /// How long the microphone gives its chipset's own noise after its link is up, as far as that was learned.
    public var settling: Duration?

    /// Nobody wears anything.
    public static let none = WornSound()

    /// Nobody wears anything, unless the arguments say otherwise.
    public init(
        microphone: Microphone = .configured, speaker: AudioDevice? = nil, keepsLink: Bool = false,
        settling: Duration? = nil
    ) {
        self.microphone = microphone
        self.speaker = speaker
        self.keepsLink = keepsLink
        self.settling = settling
    }
}
