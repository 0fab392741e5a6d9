// Lists the microphones and speakers of this machine: ALSA's control interface, its hints, and a look at each device.
import CALSA
import Glibc
import MonotonicTime
import Synchronization

/// The microphones and speakers of this machine.
public enum SoundDevices {
    /// How long all devices together may take to be opened and closed.
    public static let limit = Duration.seconds(5)
    /// Maximum number of devices that are listed.
    static let countMax = 128
    private static let cardsMax = 32

    /// Opens and closes each of them, as `AudioDevice.problem(asA:)` does, and returns after `limit` at the latest. Nothing is
    /// captured or played. It waits: not for an event loop.
    ///
    /// Sound servers come first, then cards, then what Bluetooth has.
    public static func all() -> [SoundDevice] {
        let found = Array(merged(cards: cards(), hints: hints()).prefix(countMax))
        return looked(at: found, holders: DeviceHolders.holders(), within: limit) { $0.look() }
    }

    /// The names for one use, without a look at the devices.
    public static func names(for use: AudioDevice.Use) -> [String] {
        merged(cards: cards(), hints: hints()).prefix(countMax)
            .filter { use == .microphone ? $0.isMicrophone : $0.isSpeaker }.map(\.name)
    }

    /// The devices of cards and hints in their order, before anybody has looked at them. `default` is always among them.
    static func merged(cards: [SoundCard], hints: [ALSAHint]) -> [SoundDevice] {
        var named = hints.compactMap { SoundDevice(hint: $0) }
        if let index = named.firstIndex(where: { $0.name == "default" }) {
            named.insert(named.remove(at: index), at: 0)
        } else {
            named.insert(
                SoundDevice(
                    name: "default", title: "What ALSA's configuration makes the default", kind: .server,
                    isMicrophone: true, isSpeaker: true), at: 0)
        }
        return named.filter { $0.kind == .server } + cards.flatMap(\.devices)
            + named.filter { $0.kind == .bluetooth }
    }

    /// `devices` with what `look` finds of each, and with those of `holders` that hold it. A device that is not answered for
    /// in time is told as such.
    static func looked(
        at devices: [SoundDevice], holders: [SoundHolder], within limit: Duration,
        _ look: @escaping @Sendable (SoundDevice) -> [AudioDevice.Use: AudioError]
    ) -> [SoundDevice] {
        let problems = Problems()
        if let ended = try? WakeDescriptor(),
            (try? RealTimeThread(name: "sound-list") {
                for device in devices {
                    let problem = look(device)
                    problems.answers.withLock { $0.append(problem) }
                }
                ended.signal()
            }) != nil
        {
            _ = ended.wait(until: .now + limit)
        }
        let answers = problems.answers.withLock { $0 }
        return devices.enumerated().map { index, device in
            var device = device
            let silent = AudioError.unresponsive(device.name)
            device.take(index < answers.count ? answers[index] : [.microphone: silent, .speaker: silent])
            device.holders = holders.filter { holder in
                guard let place = device.place, (place.number, place.device) == (holder.card, holder.device)
                else { return false }
                return holder.use == .microphone ? device.isMicrophone : device.isSpeaker
            }
            return device
        }
    }

    /// The programs that hold the device of a card that `device` means; none for what is no card.
    public static func holders(of device: AudioDevice) -> [SoundHolder] {
        guard case .alsa(let name) = device, let meant = SoundDeviceName(name) else { return [] }
        let number = Int(meant.card) ?? cards().first { $0.id == meant.card }?.number
        return DeviceHolders.holders().filter { $0.card == number && $0.device == meant.device }
    }

    private final class Problems: Sendable {
        let answers = Mutex<[[AudioDevice.Use: AudioError]]>([])
    }

    // MARK: ALSA's control interface

    private static func hints() -> [ALSAHint] {
        _ = ALSAPCM.silence
        return ALSANames.hints()
    }

    static func cards() -> [SoundCard] {
        _ = ALSAPCM.silence
        var found: [SoundCard] = []
        var number: Int32 = -1
        while found.count < cardsMax, snd_card_next(&number) >= 0, number >= 0 { found.append(card(Int(number))) }
        return found
    }

    private static func card(_ number: Int) -> SoundCard {
        var opened: OpaquePointer?
        // Non-blocking: a card that is being taken away is not waited for.
        let result = snd_ctl_open(&opened, "hw:\(number)", SND_CTL_NONBLOCK | SND_CTL_READONLY)
        guard result >= 0, let control = opened else { return unknown(number, result) }
        defer { snd_ctl_close(control) }
        var made: OpaquePointer?
        guard snd_ctl_card_info_malloc(&made) >= 0, let information = made else { return unknown(number, -ENOMEM) }
        defer { snd_ctl_card_info_free(information) }
        let asked = snd_ctl_card_info(control, information)
        guard asked >= 0 else { return unknown(number, asked) }
        var card = SoundCard(
            number: number, id: text(snd_ctl_card_info_get_id(information)),
            title: text(snd_ctl_card_info_get_name(information)),
            isUSB: text(snd_ctl_card_info_get_driver(information)) == "USB-Audio")
        card.microphones = devices(of: control, SND_PCM_STREAM_CAPTURE, names: &card.names)
        card.speakers = devices(of: control, SND_PCM_STREAM_PLAYBACK, names: &card.names)
        return card
    }

    private static func devices(
        of control: OpaquePointer, _ stream: snd_pcm_stream_t, names: inout [Int: String]
    ) -> [Int] {
        var made: OpaquePointer?
        guard snd_pcm_info_malloc(&made) >= 0, let information = made else { return [] }
        defer { snd_pcm_info_free(information) }
        var found: [Int] = []
        var device: Int32 = -1
        while found.count < cardsMax, snd_ctl_pcm_next_device(control, &device) >= 0, device >= 0 {
            snd_pcm_info_set_device(information, UInt32(device))
            snd_pcm_info_set_subdevice(information, 0)
            snd_pcm_info_set_stream(information, stream)
            guard snd_ctl_pcm_info(control, information) >= 0 else { continue }
            found.append(Int(device))
            names[Int(device)] = text(snd_pcm_info_get_name(information))
        }
        return found
    }

    private static func text(_ value: UnsafePointer<CChar>?) -> String { value.map { String(cString: $0) } ?? "" }

    /// A card that cannot be asked. The kernel tells its id to everybody.
    private static func unknown(_ number: Int, _ result: Int32) -> SoundCard {
        var card = SoundCard(number: number, id: "\(number)", title: "a sound card that cannot be asked")
        let id = DeviceHolders.text("/proc/asound/card\(number)/id").prefix { $0 > " " }
        if !id.isEmpty { card.id = String(id) }
        card.problem = AudioError(AudioFault(.transfer, result), device: .alsa("plughw:CARD=\(card.id)"))
        return card
    }
}

extension SoundDevice {
    /// What keeps it from being opened.
    fileprivate func look() -> [AudioDevice.Use: AudioError] {
        guard problems.isEmpty else { return problems }
        let device = AudioDevice.alsa(name)
        var found: [AudioDevice.Use: AudioError] = [:]
        if isMicrophone { found[.microphone] = device.problem(asA: .microphone) }
        if isSpeaker { found[.speaker] = device.problem(asA: .speaker) }
        return found
    }
}

/// A name that ALSA's configuration offers, with what it says of it.
struct ALSAHint: Equatable {
    var name: String
    /// What it is, for people, in lines; empty when ALSA does not say.
    var description = ""
    var isMicrophone = true
    var isSpeaker = true
}

enum ALSANames {
    /// Maximum number of names that are looked at.
    static let hintsMax = 512

    private static let converters: Set = ["lavrate", "samplerate", "speexrate", "speex", "upmix", "vdownmix"]

    /// ALSA's hints (`aplay -L`), each name once, in ALSA's order. Empty when ALSA has no configuration. It reads files, for tens of
    /// milliseconds.
    static func hints() -> [ALSAHint] {
        var list: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
        guard snd_device_name_hint(-1, "pcm", &list) == 0, let list else { return [] }
        defer { snd_device_name_free_hint(list) }
        var found: [ALSAHint] = []
        var index = 0
        while index < hintsMax, let hint = list[index] {
            index += 1
            guard let name = text("NAME", of: hint) else { continue }
            // Rate converters and mixers need a device of their own behind them: no use to who looks for one.
            if converters.contains(name) || found.contains(where: { $0.name == name }) { continue }
            // Without a direction it has both.
            let direction = text("IOID", of: hint)
            found.append(
                ALSAHint(
                    name: name, description: text("DESC", of: hint) ?? "", isMicrophone: direction != "Output",
                    isSpeaker: direction != "Input"))
        }
        return found
    }

    private static func text(_ key: String, of hint: UnsafeMutableRawPointer) -> String? {
        guard let text = snd_device_name_get_hint(hint, key) else { return nil }
        defer { free(text) }
        return String(cString: text)
    }
}
