// Who holds a sound card, as an error tells it.
import Glibc
import Testing

@testable import Audio

@Suite struct DeviceHoldersTests {
    @Test func `who holds a card is told by name and process`() throws {
        let proc = temporaryPath("proc")
        defer { _ = Child(["rm", "-rf", proc])?.finish(within: .seconds(5)) }
        for folder in ["", "/asound", "/4711", "/asound/card0", "/asound/card1", "/asound/card1/pcm0p"] {
            mkdir(proc + folder, 0o700)
        }
        for folder in ["/asound/card0/pcm0c", "/asound/card0/pcm0c/sub0", "/asound/card1/pcm0p/sub0"] {
            mkdir(proc + folder, 0o700)
        }
        symlink("card1", proc + "/asound/Device")
        writeFile(proc + "/4711/comm", Array("aplay\n".utf8))
        writeFile(proc + "/asound/card0/pcm0c/sub0/status", Array("closed\n".utf8))
        writeFile(
            proc + "/asound/card1/pcm0p/sub0/status",
            Array("state: RUNNING\nowner_pid   : 4711\ntrigger_time: 1\n".utf8))
        let holder = "aplay (process 4711, card 1)"
        for name in ["default", "hw:1,0", "plughw:CARD=Device,DEV=0", "hw:1"] {
            #expect(DeviceHolders.all(of: name, proc: proc) == [holder], "\(name)")
        }
        #expect(DeviceHolders.all(of: "hw:0,0", proc: proc).isEmpty)
        #expect(DeviceHolders.all(of: "default", proc: "/no/such/proc").isEmpty)
        let words = "\(AudioError.deviceBusy("alsa:hw:1", holders: [holder]))"
        #expect(words.contains("aplay (process 4711, card 1) uses it"))
    }

    @Test func `the thread that opened a card is told as its process, with user and direction`() throws {
        let proc = temporaryPath("proc")
        defer { _ = Child(["rm", "-rf", proc])?.finish(within: .seconds(5)) }
        for folder in [
            "", "/asound", "/812", "/815", "/asound/card2", "/asound/card2/pcm1c", "/asound/card2/pcm1c/sub0",
        ] { mkdir(proc + folder, 0o700) }
        writeFile(proc + "/812/comm", Array("pttd\n".utf8))
        writeFile(proc + "/815/comm", Array("ptt-capture\n".utf8))
        writeFile(proc + "/815/status", Array("Name:\tptt-capture\nTgid:\t812\nPid:\t815\n".utf8))
        writeFile(proc + "/asound/card2/pcm1c/sub0/status", Array("state: RUNNING\nowner_pid   : 815\n".utf8))
        let holder = SoundHolder(
            program: "pttd", process: 812, user: getuid(), use: .microphone, card: 2, device: 1)
        #expect(DeviceHolders.holders(proc: proc) == [holder])
        #expect(DeviceHolders.all(of: "hw:2", proc: proc) == ["pttd (process 812, card 2)"])
    }

    @Test func `of a holder that this process may not see the thread is told, and who can name it`() throws {
        let proc = temporaryPath("proc")
        defer { _ = Child(["rm", "-rf", proc])?.finish(within: .seconds(5)) }
        for folder in ["", "/asound", "/asound/card1", "/asound/card1/pcm0p", "/asound/card1/pcm0p/sub0"] {
            mkdir(proc + folder, 0o700)
        }
        writeFile(proc + "/asound/card1/pcm0p/sub0/status", Array("state: RUNNING\nowner_pid   : 4711\n".utf8))
        #expect(DeviceHolders.holders(proc: proc).map(\.program) == [nil])
        #expect(
            DeviceHolders.all(of: "hw:1", proc: proc)
                == ["a program (thread 4711, card 1; 'sudo pttctl audio list' names it)"])
    }
}
