// The list of devices: names from cards and hints, who holds them, and the real alsa-lib of this machine.
import Glibc
import Testing

@testable import Audio

@Suite struct SoundDeviceTests {
    private let headset = SoundCard(
        number: 1, id: "Headset", title: "Jabra SPEAK 510 USB", isUSB: true, microphones: [0], speakers: [0],
        names: [0: "USB Audio"])
    private let computer = SoundCard(
        number: 0, id: "PCH", title: "HDA Intel PCH", microphones: [0], speakers: [0, 3, 7],
        names: [0: "ALC257 Analog", 3: "HDMI 0", 7: "HDMI 1"])

    @Test func `a card with one device is named by its id alone`() {
        let devices = headset.devices
        #expect(devices.map(\.name) == ["plughw:CARD=Headset"])
        #expect(devices[0].isMicrophone && devices[0].isSpeaker && devices[0].isUSB && devices[0].kind == .card)
        #expect(devices[0].title == "Jabra SPEAK 510 USB")
    }

    @Test func `the device is named where the card has more of that direction, or where it is not the first`() {
        let devices = computer.devices
        #expect(
            devices.map(\.name) == [
                "plughw:CARD=PCH", "plughw:CARD=PCH,DEV=0", "plughw:CARD=PCH,DEV=3", "plughw:CARD=PCH,DEV=7",
            ])
        #expect(devices.map(\.isMicrophone) == [true, false, false, false])
        #expect(devices.map(\.isSpeaker) == [false, true, true, true])
        #expect(devices[2].title == "HDA Intel PCH, HDMI 0")
        #expect(SoundCard(number: 2, id: "H", speakers: [3]).devices.map(\.name) == ["plughw:CARD=H,DEV=3"])
        #expect(SoundCard(number: 2, id: "MIDI").devices.isEmpty)
    }

    @Test func `a card that may not be asked is listed with the reason`() {
        var card = SoundCard(number: 0, id: "PCH")
        card.problem = .permissionDenied("PCH")
        #expect(card.devices.map(\.name) == ["plughw:CARD=PCH"])
        #expect(card.devices[0].problemInShort == "permission denied: add the user to the group 'audio'")
    }

    @Test func `a configuration means a device by its id, its number, or its position`() {
        let device = headset.devices[0]
        for text in [
            "plughw:CARD=Headset", "alsa:plughw:CARD=Headset", "hw:CARD=Headset,DEV=0", "plughw:Headset", "hw:1,0",
            "plughw:1", "plughw:DEV=0,CARD=Headset",
        ] { #expect(device.isMeant(by: text), "\(text)") }
        for text in ["plughw:CARD=Headset,DEV=1", "hw:0", "default", "dsnoop:CARD=Headset", "plughw:", "hw:x,y"] {
            #expect(!device.isMeant(by: text), "\(text)")
        }
        #expect(SoundDevice.isNumbered("hw:1,0") && SoundDevice.isNumbered("alsa:plughw:CARD=1"))
        #expect(!SoundDevice.isNumbered("plughw:CARD=Headset") && !SoundDevice.isNumbered("default"))
    }

    @Test func `of ALSA's hints only those are listed that an installer can use`() {
        let hints = [
            ALSAHint(name: "null", description: "Discard all samples"),
            ALSAHint(name: "pulse", description: "PulseAudio Sound Server"),
            ALSAHint(name: "default", description: "Default ALSA Output (currently PipeWire Media Server)\nmore"),
            ALSAHint(name: "hw:CARD=Headset,DEV=0"), ALSAHint(name: "sysdefault:CARD=Headset"),
            ALSAHint(name: "jack"), ALSAHint(name: "oss"),
            ALSAHint(
                name: "bluealsa:DEV=00:11:22:33:44:55,PROFILE=sco", description: "Jabra Evolve, trusted\nBluetooth",
                isSpeaker: false),
        ]
        let devices = SoundDevices.merged(cards: [headset], hints: hints)
        #expect(
            devices.map(\.name) == [
                "default", "pulse", "plughw:CARD=Headset", "bluealsa:DEV=00:11:22:33:44:55,PROFILE=sco",
            ])
        #expect(devices[0].title == "Default ALSA Output (currently PipeWire Media Server)")
        #expect(devices[3].kind == .bluetooth && devices[3].isMicrophone && !devices[3].isSpeaker)
        #expect(SoundDevices.merged(cards: [], hints: []).map(\.name) == ["default"])
        let address = "DEV=00:11:22:33:44:55"
        #expect(
            devices[3].isMeant(by: "bluealsa:PROFILE=sco,\(address)") && devices[3].isMeant(by: "bluealsa:\(address)"))
        #expect(!devices[3].isMeant(by: "bluealsa:\(address),PROFILE=a2dp") && !devices[3].isMeant(by: "bluealsa"))
    }

    @Test func `who holds a device is told with it, by direction`() {
        let holder = SoundHolder(program: "pttd", process: 812, user: 0, use: .microphone, card: 0, device: 0)
        let other = SoundHolder(program: "aplay", process: 9, user: 1_000, use: .speaker, card: 0, device: 3)
        let devices = SoundDevices.looked(
            at: computer.devices + headset.devices, holders: [holder, other], within: .seconds(5)
        ) { _ in [:] }
        #expect(devices.map(\.holders) == [[holder], [], [other], [], []])
        #expect(devices.allSatisfy { $0.problemInShort.isEmpty })
    }

    @Test func `a device that does not answer keeps nobody waiting`() throws {
        let devices = SoundDevices.merged(cards: [headset, computer], hints: [])
        let released = try WakeDescriptor()
        let looked = SoundDevices.looked(at: devices, holders: [], within: .milliseconds(300)) { device in
            if device.name != "default" { released.wait() }
            return [:]
        }
        #expect(looked[0].problems.isEmpty)
        #expect(looked.dropFirst().allSatisfy { $0.problemInShort == "it does not answer" })
        for _ in devices { released.signal() }
    }

    @Test func `a name of ALSA's configuration has the direction that it opens in`() throws {
        var device = try #require(SoundDevice(hint: ALSAHint(name: "dsnooped")))
        device.take([.speaker: .noSuchDevice("dsnooped")])
        #expect(device.isMicrophone && !device.isSpeaker && device.problemInShort.isEmpty)
        var broken = try #require(SoundDevice(hint: ALSAHint(name: "pulse")))
        broken.take([.microphone: .deviceVanished("pulse"), .speaker: .deviceVanished("pulse")])
        #expect(broken.problemInShort == "its sound server does not run, or it was unplugged")
        var half = try #require(SoundDevice(hint: ALSAHint(name: "pulse")))
        half.take([.speaker: .permissionDenied("pulse")])
        #expect(half.problemInShort == "as a speaker: permission denied: add the user to the group 'audio'")
    }

    @Test func `the devices of this machine are listed by real alsa-lib`() {
        let devices = SoundDevices.all()
        #expect(devices.first?.name == "default")
        #expect(Set(devices.map(\.name)).count == devices.count)
        #expect(devices.allSatisfy { $0.isMicrophone || $0.isSpeaker })
        #expect(!devices.contains { $0.name == "null" })
        #expect(SoundDevices.names(for: .microphone).contains("default"))
        #expect(
            SoundDevices.holders(of: .alsa("default")).isEmpty && SoundDevices.holders(of: .wav(path: "/x")).isEmpty)
    }
}
