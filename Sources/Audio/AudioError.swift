// The errors of audio, with words that say what to do, and their allocation-free form for the real-time threads.
import CALSA
import COpus
import Glibc

/// A failure of a device, a file or the codec. `description` says what to do about it.
public enum AudioError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The text in the configuration is not a device.
    case invalidDeviceName(String, reason: String)
    /// ALSA knows no PCM of that name.
    case noSuchDevice(String)
    /// Another program uses the device. `holders`: its users, as far as the kernel reports them.
    case deviceBusy(String, holders: [String])
    /// The user may not open the device.
    case permissionDenied(String)
    /// The device has gone (unplugged, or its sound server ended).
    case deviceVanished(String)
    /// The device is open but neither delivers nor takes samples.
    case deviceStalled(String)
    /// The microphone has given nothing but silence.
    case deviceSilent(String)
    /// The device offers nothing that can be converted.
    case unsupportedFormat(String, detail: String)
    /// A WAV file cannot be read or written; `code` is an errno.
    case file(path: String, operation: String, code: Int32)
    /// A file is not a WAV file that can be played.
    case malformedWAV(path: String, reason: String)
    /// libopus refused; `code` is one of its error codes.
    case codec(operation: String, code: Int32)
    /// ALSA or the system refused for another reason; `code` is an errno.
    case device(String, operation: String, code: Int32)
    /// The engine's thread did not take commands any more, so they were refused.
    case unresponsive(String)

    /// What happened and what to do.
    public var description: String {
        switch self {
        case .invalidDeviceName(let text, let reason):
            "\"\(text)\" is not an audio device: \(reason); write alsa:NAME, an ALSA name such as default or hw:0, or wav:PATH"
        case .noSuchDevice(let device):
            "\(device): no such device; 'pttctl audio list' shows the names for [audio] in pttd.toml"
        case .deviceBusy(let device, let holders):
            "\(device) is busy: "
                + (holders.isEmpty
                    ? "another program uses it (fuser -v /dev/snd/*)" : "\(holders.joined(separator: ", ")) uses it")
                + "; end that program, or use the sound server's name (pulse, pipewire, default)"
        case .permissionDenied(let device):
            "\(device): permission denied; add the user to the group audio (usermod -aG audio USER), or run as a user service in the desktop session"
        case .deviceVanished(let device):
            "\(device) has gone: unplugged, or its sound server ended; it is opened again at the next use"
        case .deviceStalled(let device):
            "\(device) moves no samples: check that its card or sound server runs (aplay -l, pactl info)"
        case .deviceSilent(let device):
            "\(device) gives no sound: check whether it is muted, and whether its Bluetooth link is up (pttctl audio test)"
        case .unsupportedFormat(let device, let detail):
            "\(device): unsupported format: \(detail); try plughw: instead of hw:"
        case .file(let path, let operation, let code):
            "\(path): cannot \(operation) it: \(Self.text(ofErrno: code)); "
                + "microphone and speaker are named in [audio] of pttd.toml"
        case .malformedWAV(let path, let reason):
            "\(path) is not a usable WAV file: \(reason); use 16-bit or float PCM, for example: sox IN -b 16 OUT.wav"
        case .codec(let operation, let code):
            "Opus: cannot \(operation): \(String(cString: opus_strerror(code)))"
        case .device(let device, let operation, let code):
            "\(device): cannot \(operation): \(String(cString: snd_strerror(-abs(code))))"
        case .unresponsive(let device):
            "\(device): the driver has been blocking for seconds; check the device or its sound server"
        }
    }

    private static func text(ofErrno code: Int32) -> String {
        String(cString: strerror(abs(code)))
    }
}

/// A failure as the real-time threads hand it on: two numbers, made without allocating.
struct AudioFault: Error, Equatable, BitwiseCopyable {
    enum Operation: UInt8, BitwiseCopyable {
        case open, configure, start, transfer, resume, stall, silence, readFile, writeFile, parseFile, fileFull, encode,
            overload
    }

    var operation: Operation
    /// A positive errno; for `.parseFile` a `WAVProblem`, for `.encode` an Opus error.
    var code: Int32

    init(_ operation: Operation, _ code: Int32) {
        self.operation = operation
        self.code = operation == .encode ? code : abs(code)
    }
}

extension AudioError {
    /// The fault of a device in words. Allocates, and may look for who holds the device: not for a real-time thread.
    init(_ fault: AudioFault, device: AudioDevice) {
        let name = device.description
        switch (device, fault.operation) {
        case (.wav(let path), .parseFile):
            self = .malformedWAV(path: path, reason: (WAVProblem(rawValue: fault.code) ?? .unreadable).description)
        case (.wav(let path), .fileFull):
            self = .file(path: path, operation: "go on: a WAV file ends at 4 GiB", code: EFBIG)
        case (.wav(let path), .writeFile): self = .file(path: path, operation: "write", code: fault.code)
        case (.wav(let path), .encode): self = .codec(operation: "encode what \(path) gave", code: fault.code)
        case (.wav(let path), .overload): self = .unresponsive(path)
        case (.wav(let path), .open): self = .file(path: path, operation: "open", code: fault.code)
        case (.wav(let path), _): self = .file(path: path, operation: "read", code: fault.code)
        case (_, .encode): self = .codec(operation: "encode", code: fault.code)
        case (_, .overload): self = .unresponsive(name)
        case (_, .stall): self = .deviceStalled(name)
        case (_, .silence): self = .deviceSilent(name)
        // EINVAL: a card or device number that is not there.
        case (.alsa(let pcm), .open) where [ENOENT, ENODEV, ENXIO, EINVAL].contains(fault.code):
            self = .noSuchDevice(pcm)
        case (_, .configure) where fault.code == EINVAL || fault.code == ENOTSUP:
            self = .unsupportedFormat(name, detail: "no interleaved 16, 24 or 32-bit or float PCM")
        case (_, _):
            switch fault.code {
            case EBUSY, EAGAIN:
                var holders: [String] = []
                if case .alsa(let pcm) = device { holders = DeviceHolders.all(of: pcm) }
                self = .deviceBusy(name, holders: holders)
            case EACCES, EPERM: self = .permissionDenied(name)
            case ENODEV, EIO, EBADFD, ECONNREFUSED, ECONNRESET: self = .deviceVanished(name)
            default: self = .device(name, operation: "\(fault.operation)", code: fault.code)
            }
        }
    }
}
